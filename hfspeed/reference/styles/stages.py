"""Pipeline stages as transformers makes them: what is elsewhere hands on, and hidden states go in as embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from hfspeed.reference.styles.rank import copied


class Elsewhere(nn.Module):
    """Stands for a module of another stage: gives back what it is given first."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The first argument."""
        return args[0] if args else next(iter(kwargs.values()))


def staged(
    model: nn.Module, base: str, names: Sequence[str], layers: str, stage: int, stages: int, head: str
) -> nn.Module:
    """One stage of ``model``.

    Args:
        model: the author's ``ForCausalLM``.
        base: the path of its base model.
        names: children of the base model that the plan names, in order.
        layers: which of them is the list of layers.
        stage / stages: which stage, of how many.
        head: the path of the output projection.
    """
    root = copied(model, train=False)
    inner = root.get_submodule(base)
    owned = inner.get_submodule(layers)
    assert isinstance(owned, nn.ModuleList)
    here = _range(len(owned), stage, stages)
    for number in range(len(owned)):
        if number not in here:
            owned[number] = Elsewhere()
    at = list(names).index(layers)
    before, after = list(names)[:at], list(names)[at + 1 :]
    for name in (before if stage else []) + (after if stage < stages - 1 else []):
        _put(inner, name)
    if stage < stages - 1:
        _put(root, head)
    return root


def _range(count: int, stage: int, stages: int) -> range:
    each = count // stages
    return range(stage * each, count if stage == stages - 1 else (stage + 1) * each)


def _put(root: nn.Module, path: str) -> None:
    above, _, name = path.rpartition(".")
    setattr(root.get_submodule(above), name, Elsewhere())
