"""Key and value heads that stand several times are seen on meta too, whatever nobody knows the value of."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hfspeed.graph.record import record
from hfspeed.pattern.repeats import repeats
from hfspeed.pattern.scores import written

TOKENS = 6


class Angles(nn.Module):
    """What follows from values that were never computed: its buffer is on meta, and it looks at its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, heads, tokens, 8]`` to two of ``[tokens, 8]``."""
        angle = torch.arange(x.shape[2], device=x.device)[:, None] * self.rates
        return angle.cos(), angle.sin()


class Grouped(nn.Module):
    """Four heads that ask two; the angles come from a child, or from whoever calls."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.ask, self.key, self.value = (nn.Linear(32, 8 * n, bias=False) for n in (4, 4 // times, 4 // times))
        self.angles = Angles()

    def forward(self, x: torch.Tensor, given: tuple[torch.Tensor, torch.Tensor] | None = None) -> torch.Tensor:
        """``[batch, tokens, 32]`` to the same."""
        query, key, value = (one(x).unflatten(-1, (-1, 8)).transpose(1, 2) for one in (self.ask, self.key, self.value))
        cos, sin = self.angles(value) if given is None else given
        query, key = query * cos + query.flip(-1) * sin, key * cos + key.flip(-1) * sin
        key, value = (one.repeat_interleave(self.times, 1) for one in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


class Whole(nn.Module):
    def __init__(self, times: int, outside: bool) -> None:
        super().__init__()
        self.mixer, self.outside = Grouped(times), outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, 32]`` to the same."""
        angles = (torch.empty(TOKENS, 8, device=x.device), torch.empty(TOKENS, 8, device=x.device))
        return self.mixer(x, angles if self.outside else None)  # type: ignore[no-any-return]


def found(times: int, **options: Any) -> int:
    with torch.device("meta"):
        model = Whole(times, **options).eval()
        recording = record(model, {"x": torch.empty(1, TOKENS, 32)})
    one = written(recording.calls["mixer"], TOKENS)
    assert one is not None
    return repeats(one)


def test_heads_turned_by_angles_that_nobody_can_compute() -> None:
    assert found(2, outside=False) == 2


def test_heads_turned_by_angles_from_outside() -> None:
    assert found(2, outside=True) == 2


def test_heads_of_their_own_are_their_own() -> None:
    assert found(1, outside=False) == found(1, outside=True) == 1
