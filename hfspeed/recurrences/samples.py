"""Random operands of every kind, by which a function is found to compute what its name says, or something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Sizes:
    """How large operands are.

    Attributes:
        batch / tokens: sequences, and tokens of each.
        heads: heads where a kind has them.
        size: of a head's key or value, or of a state; channels are heads times this.
    """

    batch: int
    tokens: int
    heads: int
    size: int


@dataclass(frozen=True)
class Sample:
    """One set of operands to try.

    Attributes:
        sizes: how large they are.
        scale: what operands are multiplied by in which the result is straight.
        rate: what logarithms of decays are multiplied by.
    """

    sizes: Sizes
    scale: float = 1.0
    rate: float = 1.0


SMALL, LONG, WIDE = Sizes(2, 9, 3, 8), Sizes(1, 1100, 2, 4), Sizes(1, 3, 64, 128)
SAMPLES = (
    Sample(SMALL),
    Sample(SMALL, 1e-4, 1e-3),
    Sample(SMALL, 1e4, 30.0),
    Sample(Sizes(2, 1, 3, 8)),
    Sample(Sizes(1, 150, 2, 4), 1.0, 0.01),
    Sample(LONG, 1.0, 1e-3),
    Sample(WIDE),
)
"""Few tokens and many, narrow and wide, tiny and huge: a bound or a branch in a function shows in one of them."""

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "activation": ("silu",),
    "dt_softplus": (True,),
    "use_qk_l2norm_in_kernel": (True,),
}
"""What settings are tried besides the usual ones."""


def sample(kind: str, one: Sample) -> dict[str, torch.Tensor]:
    """Operands of ``kind`` by role, in float64; the same each time."""
    source = torch.Generator(device="cpu").manual_seed(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source, dtype=torch.float64, device="cpu")

    return _MAKERS[kind](one, normal)


Normal = Callable[..., torch.Tensor]
Tensors = dict[str, torch.Tensor]


def _convolution(one: Sample, normal: Normal) -> Tensors:
    b, t, c = one.sizes.batch, one.sizes.tokens, one.sizes.heads * one.sizes.size
    return {"x": one.scale * normal(b, c, t), "weight": normal(c, 4), "bias": one.scale * normal(c)}


def _shift(one: Sample, normal: Normal) -> Tensors:
    return {"x": one.scale * normal(one.sizes.batch, one.sizes.tokens, one.sizes.heads * one.sizes.size)}


def _ssd(one: Sample, normal: Normal) -> Tensors:
    b, t, h, n = one.sizes.batch, one.sizes.tokens, one.sizes.heads, one.sizes.size
    return {
        "x": one.scale * normal(b, t, h, n), "dt": one.rate * normal(b, t, h).abs(), "B": normal(b, t, 1, n),
        "C": one.scale * normal(b, t, 1, n), "A": -normal(h).exp(), "D": normal(h),
        "dt_bias": one.rate * normal(h).abs(),
    }  # fmt: skip


def _selective_scan(one: Sample, normal: Normal) -> Tensors:
    b, t, c, n = one.sizes.batch, one.sizes.tokens, one.sizes.heads * one.sizes.size, one.sizes.heads
    return {
        "x": one.scale * normal(b, c, t), "dt": one.rate * normal(b, c, t).abs(), "B": normal(b, n, t),
        "C": one.scale * normal(b, n, t), "z": normal(b, c, t), "A": -normal(c, n).exp(), "D": normal(c),
        "dt_bias": one.rate * normal(c).abs(),
    }  # fmt: skip


def _delta(one: Sample, normal: Normal, *, fine: bool) -> Tensors:
    b, t, h, n = one.sizes.batch, one.sizes.tokens, one.sizes.heads, one.sizes.size
    rates = normal(b, t, h, n) if fine else normal(b, t, h)
    return {
        "v": one.scale * normal(b, t, h, n), "q": one.scale * normal(b, t, h, n),
        "k": torch.nn.functional.normalize(normal(b, t, h, n), dim=-1), "g": -one.rate * rates.exp(),
        "beta": normal(b, t, h).sigmoid(),
    }  # fmt: skip


def _linear(one: Sample, normal: Normal) -> Tensors:
    b, t, c = one.sizes.batch, one.sizes.tokens, one.sizes.heads * one.sizes.size
    x, gate = one.scale * normal(b, t, c), (-one.rate * normal(b, t, c).exp()).exp()
    return {"x": x, "gate": gate, "reset": normal(b, t, 1) > 1.5}


def _wkv(one: Sample, normal: Normal) -> Tensors:
    b, t, c = one.sizes.batch, one.sizes.tokens, one.sizes.heads * one.sizes.size
    return {
        "v": one.scale * normal(b, t, c),
        "k": 4 * normal(b, t, c),
        "time_decay": normal(c),
        "time_first": normal(c),
    }


_MAKERS: dict[str, Callable[[Sample, Normal], Tensors]] = {
    "convolution": _convolution,
    "shift": _shift,
    "ssd": _ssd,
    "selective_scan": _selective_scan,
    "gated_delta": lambda one, normal: _delta(one, normal, fine=False),
    "fine_gated_delta": lambda one, normal: _delta(one, normal, fine=True),
    "linear_recurrence": _linear,
    "wkv": _wkv,
}
