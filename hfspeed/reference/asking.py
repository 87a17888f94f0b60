"""How an author's model is asked for logits, and where they are in its answer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from hfspeed.graph.tensors import tensors


def ids_name(module: Any) -> str:
    """The parameter of a forward that takes token ids: ``input_ids``, or its first."""
    taken = inspect.signature(module.forward).parameters
    if "input_ids" in taken:
        return "input_ids"
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return next((name for name, entry in taken.items() if entry.kind in plain), "input_ids")


def asked(model: Any, tokens: torch.Tensor | None) -> dict[str, Any]:
    """A plain question to an author's model, as far as its forward listens: token ids, and that no cache is wanted."""
    taken = inspect.signature(model.forward).parameters.values()
    anything = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken)
    listens = anything or any(entry.name == "use_cache" for entry in taken)
    return {ids_name(model): tokens} | ({"use_cache": False} if listens else {})


def scores(answer: Any) -> torch.Tensor:
    """The logits in what an author's model returns: under their name, as the first tensor of a tuple, or alone."""
    if isinstance(answer, torch.Tensor):
        return answer
    named = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    found = named if named is not None else next(tensors(answer), None)
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"a {type(answer).__name__} holds no logits")
    return found
