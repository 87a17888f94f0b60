"""What follows from positions, in plain torch: rotations, and rows that are looked up."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hfspeed.pattern.rotation import once, turned
from hfspeed.pattern.table import called, named, rows
from hfspeed.plan.ops import Positions, Rotary

LENGTH = 100
"""Rows of a table that could have any number: no proof has a longer sequence, and small models keep so many."""


class Rotation(nn.Module):
    """`Rotary`: pairs of elements turned by angles."""

    def __init__(self, op: Rotary) -> None:
        super().__init__()
        self.op = op

    def forward(
        self, query: torch.Tensor, key: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Query and key, turned; shapes as `Rotary` says."""
        angles = once(cos, self.op.table), once(sin, self.op.table)
        how: Any = {"tokens": self.op.tokens, "interleaved": self.op.interleaved}
        return turned(query, *angles, **how), turned(key, *angles, **how) if key is not None else None


class Rows(nn.Module):
    """`Positions`: the author's module run once on every position, and its rows looked up."""

    def __init__(self, op: Positions, module: nn.Module) -> None:
        super().__init__()
        self.op, self.module = op, module

    def __getattr__(self, name: str) -> Any:  # what else is read off it is the author's
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """What the author's module gives for these positions, by way of a table."""
        given = named(self.module, args, keywords)
        if self.op.counted:
            like = given[self.op.value] if self.op.value else torch.zeros(1)
            return called(self.module, self.op, self.op.limit or LENGTH, like)
        positions, like, kind = (given.get(name, "") for name in (self.op.given, self.op.value, self.op.word))
        every = torch.arange(int(positions.max()) + 1, device=positions.device)[None]
        return rows(called(self.module, self.op, every, like, kind), positions)
