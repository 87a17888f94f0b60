"""The token table and the output projection of an author's model, whether or not it says which they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

FOUND = "hfspeed_ends"
"""The attribute of a model that does not say: paths of its table and of its projection."""


def table_of(model: Any) -> Any:
    """The token table, ``[vocab, size]``: what the author's `get_input_embeddings` gives, or what was found."""
    found = getattr(model, FOUND, None)
    return model.get_input_embeddings() if found is None else model.get_submodule(found[0])


def projection_of(model: Any) -> Any:
    """The output projection; the token table itself where its weight makes logits as well."""
    found = getattr(model, FOUND, None)
    if found is not None:
        return model.get_submodule(found[1])
    projection, table = model.get_output_embeddings(), table_of(model)
    if isinstance(getattr(projection, "weight", None), torch.Tensor) or not isinstance(projection, nn.Module):
        return projection
    rows = table.weight.shape[0]
    inside = [one for one in projection.modules() if isinstance(one, nn.Linear) and one.out_features == rows]
    return inside[-1] if inside else projection  # of several modules the one that gives the logits


def settle_ends(model: Any) -> bool:
    """Write down at a model which its ends are, if it does not say; whether it has any.

    The table is the embedding with a row for each token, the projection the last linear that gives as many numbers.
    """
    try:
        table, projection = model.get_input_embeddings(), model.get_output_embeddings()
    except (NotImplementedError, AttributeError, KeyError):
        table = projection = None
    if table is not None and projection is not None:
        return True
    named = list(model.named_modules())
    path = next((name for name, one in named if one is table), None) or _table(named, model.config)
    if path is None:
        return False
    rows = model.get_submodule(path).weight.shape[0]
    layers = tuple(f"{name}." for name, one in named if isinstance(one, nn.ModuleList))
    outer = [(name, one) for name, one in named if isinstance(one, nn.Linear) and not name.startswith(layers)]
    linears = [name for name, one in outer if one.out_features >= rows]  # vocabularies may be filled up
    setattr(model, FOUND, (path, linears[-1] if linears else path))
    return True


def _table(named: list[tuple[str, nn.Module]], config: Any) -> str | None:
    tables = {name: one for name, one in named if isinstance(one, nn.Embedding)}
    rows = getattr(config, "vocab_size", None)
    fitting = [name for name, one in tables.items() if one.num_embeddings == rows]
    return next(iter(fitting or tables), None) if len(tables) == 1 or fitting else None
