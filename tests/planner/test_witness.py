"""How far two results are apart, infinities and all."""

from __future__ import annotations

import math

import pytest
import torch

from hfspeed.planner.witness import distance

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("author", "ours", "apart"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0),
        ([1.0, -4.0], [1.0, -3.0], 0.25),
        ([1.0, -INF, -4.0], [1.0, -INF, -3.0], 0.25),
        ([-INF, -INF], [-INF, -INF], 0.0),
        ([1.0, -INF], [1.0, INF], INF),
        ([1.0, -INF], [1.0, 2.0], INF),
        ([1.0, 2.0], [1.0, -INF], INF),
        ([1.0, NAN], [1.0, NAN], INF),
        ([1.0, 2.0], [1.0], INF),
    ],
)
def test_distance(author: list[float], ours: list[float], apart: float) -> None:
    assert distance(torch.tensor(author), torch.tensor(ours)) == apart
