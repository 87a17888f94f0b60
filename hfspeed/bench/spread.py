"""Ratios of one arm to another, round by round, with the interval that their scatter allows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

DRAWS = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median of the rounds' ratios; ``low`` and ``high`` bound it at 95 %. Above 1 is better than native."""

    middle: float
    low: float
    high: float
    rounds: int


def ratio(own: Sequence[float], native: Sequence[float], *, more: bool) -> Ratio | None:
    """How one arm does beside the native one; ``None`` without a round that both have measured.

    Both lists are in the order of the rounds; what one of them has more is left out.
    """
    pairs = list(zip(own, native, strict=False))
    values = [(a / b if more else b / a) for a, b in pairs if a > 0 and b > 0]
    if not values:
        return None
    low, high = interval(values)
    return Ratio(median(values), low, high, len(values))


def interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """The 95 % interval of the median, by drawing as many values again and again, with putting back."""
    draw = random.Random(seed)  # noqa: S311  numbers to count with, no secrets
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    outside = (1 - LEVEL) / 2
    return medians[int(outside * DRAWS)], medians[int((1 - outside) * DRAWS) - 1]


def scatter(values: Sequence[float]) -> float:
    """How far apart one arm's own rounds lie, as a share of their median: the noise of the machine."""
    return (max(values) - min(values)) / median(values) if values and median(values) else 0.0


def common_start(one: Sequence[Sequence[int]], other: Sequence[Sequence[int]]) -> float:
    """The share of generated tokens before the first one that differs, over all requests: 1 is full agreement."""
    total = sum(map(len, other))
    same = 0
    for left, right in zip(one, other, strict=False):
        for a, b in zip(left, right, strict=False):
            if a != b:
                break
            same += 1
    return same / total if total else 1.0
