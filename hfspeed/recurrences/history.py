"""A module that mixes tokens in a way that nobody knows, run on all tokens of a sequence anew at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from hfspeed.errors import PlanError
from hfspeed.plan import History

HANDED_DOWN = "token_positions"
"""Positions, for modules that were made to look them up; one that runs on whole sequences counts by itself."""
MOST = "~"
"""Before a size: as many as there are tokens, up to it."""
NONE = "none"
"""Stands for an input that does not follow the tokens, and for a result that is not handed on."""


def dims(told: Sequence[str]) -> list[int | None]:
    """In which dimension of each tensor tokens lie: ``("1xTx64", "none")`` to ``[1, None]``."""
    return [None if one == NONE else one.partition("_")[0].split("x").index("T") for one in told]


def width(told: str) -> int:
    """Elements per token: 64 for ``"1xTx64"``."""
    count = 1
    for size in told.partition("_")[0].split("x"):
        count *= 1 if size == "T" else int(size.lstrip(MOST))
    return count


def most(told: str) -> int:
    """How many tokens are chosen for each at most: 16 for ``"1xTx~16_int32"``; 0 where none are."""
    last = told.partition("_")[0].rpartition("x")[2]
    return int(last.removeprefix(MOST)) if last.startswith(MOST) else 0


def _padded(value: torch.Tensor, told: str) -> torch.Tensor:
    """As many columns as there may be: a shorter sequence has fewer, and the first one again in their place."""
    missing = max(0, most(told) - value.shape[-1])
    return torch.cat([value, value[..., :1].expand(*value.shape[:-1], missing)], -1) if missing else value


class Inputs:
    """The arguments of one call; those that follow the tokens can be exchanged."""

    def __init__(self, op: History, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.op = op
        own = {name: value for name, value in kwargs.items() if name != HANDED_DOWN}
        self.leaves, self.spec = tree_flatten((args, own))
        tensors = [at for at, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        if len(tensors) != len(op.inputs):
            raise PlanError(f"{op.path} is called with {len(tensors)} tensors, the plan says {len(op.inputs)}")
        self.told = [told for told in op.inputs if told != NONE]
        self.following = [(at, dim) for at, dim in zip(tensors, dims(op.inputs), strict=True) if dim is not None]

    def new(self, start: int, tokens: int) -> Iterator[tuple[int, torch.Tensor]]:
        """What the call brings for some of its tokens: the dimension of tokens, and the values."""
        for at, dim in self.following:
            yield dim, self.leaves[at].narrow(dim, start, tokens)

    def padding(self, forward: Callable[..., Any], start: int, tokens: int) -> list[torch.Tensor | None]:
        """What ``forward`` gives for tokens that belong to nobody: some of the call's, whatever they are.

        Numbers of tokens that were chosen for a longer sequence are made some of these.
        """
        news = [new for _, new in self.new(start, tokens)]
        fit = [new.clamp(max=tokens - 1) if most(told) else new for told, new in zip(self.told, news, strict=True)]
        return self.run(forward, fit, tokens)

    def run(self, forward: Callable[..., Any], whole: Sequence[torch.Tensor], tokens: int) -> list[torch.Tensor | None]:
        """What ``forward`` gives for the last ``tokens`` tokens, if it gets ``whole`` for what follows the tokens."""
        leaves = list(self.leaves)
        for (at, dim), told, value in zip(self.following, self.told, whole, strict=True):
            leaves[at] = value[..., : value.shape[dim]] if most(told) else value
        args, kwargs = tree_unflatten(leaves, self.spec)
        found = results(forward(*args, **kwargs))
        given = [None if dim is None else found[number] for number, dim in enumerate(dims(self.op.gives))]
        return [
            None if one is None or dim is None else _padded(one.narrow(dim, one.shape[dim] - tokens, tokens), told)
            for one, dim, told in zip(given, dims(self.op.gives), self.op.gives, strict=True)
        ]


def results(found: Any) -> list[Any]:
    """What a module returned, as a list."""
    return list(found) if isinstance(found, tuple | list) else [found]


def joined(op: History, done: Sequence[Sequence[torch.Tensor | None]]) -> Any:
    """Results of pieces side by side, as the module returns them; what does not follow the tokens is ``None``."""
    every = [
        None if dim is None else torch.cat([piece[number] for piece in done], dim)  # type: ignore[misc]
        for number, dim in enumerate(dims(op.gives))
    ]
    return every[0] if len(every) == 1 else tuple(every)
