"""A module that gives rows for positions, seen as a table of rows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from hfspeed.plan.ops import Positions


def named(module: nn.Module, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by the names of the module's parameters.

    Raises:
        TypeError: they do not fit, or are gathered in a parameter that takes any number.
    """
    signature = inspect.signature(module.forward)
    if any(entry.kind in {entry.VAR_POSITIONAL, entry.VAR_KEYWORD} for entry in signature.parameters.values()):
        raise TypeError("it takes any number of arguments")
    return dict(signature.bind(*args, **keywords).arguments)


def called(module: nn.Module, op: Positions, positions: torch.Tensor | int, like: torch.Tensor, kind: str = "") -> Any:
    """What the module gives for ``positions`` ``[1, tokens]``, or for so many; ``like`` says dtype and place."""
    given = {op.given: positions} | ({op.value: like} if op.value else {}) | ({op.word: kind} if op.word else {})
    return module(**given)


def rows(value: Any, positions: torch.Tensor) -> Any:
    """The rows of a table for ``positions``: ``[1, every, size]`` to ``[1, tokens, size]``, also in tuples."""
    if isinstance(value, torch.Tensor):
        return value[0][positions]
    return tuple(rows(one, positions) for one in value)
