"""Tables of angles whose rates a checkpoint may hold: only rows that were made without them are taken."""

from __future__ import annotations

import torch
from torch import nn

from hfspeed.plan import Positions
from hfspeed.planner.tables import MOST, _limit


class Cached(nn.Module):
    """As older code has it: rates in the checkpoint, tables made from them when built, and again when too short."""

    def __init__(self, rows: int, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("rates", 10000.0 ** -(torch.arange(8) / 8), persistent=persistent)
        self.fill(rows)

    def fill(self, rows: int) -> None:
        self.rows = rows
        self.register_buffer("cos", torch.outer(torch.arange(rows), self.rates).cos(), persistent=False)

    def forward(self, x: torch.Tensor, length: int) -> torch.Tensor:
        """``[length, 8]``."""
        if length > self.rows:
            self.fill(length)
        return self.cos[:length].to(x.dtype)


def limit(module: nn.Module) -> int:
    return _limit(module, Positions("rotary", "length", "x", counted=True))


def test_rows_that_a_checkpoint_would_change_are_not_taken() -> None:
    assert limit(Cached(96, persistent=True)) == 96


def test_without_any_in_the_checkpoint_there_is_no_end() -> None:
    assert limit(Cached(96, persistent=False).double()) == MOST
