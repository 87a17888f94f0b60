"""Medians of per-round ratios, and intervals that contain what they should."""

from __future__ import annotations

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hfspeed.bench.spread import common_start, interval, ratio, scatter


def test_a_ratio_is_taken_round_by_round() -> None:
    """A machine that slows down for both arms does not show."""
    native = [100.0, 50.0, 200.0, 10.0, 80.0]
    one = ratio([value * 1.1 for value in native], native, more=True)
    assert one is not None
    assert (one.low, one.middle, one.high) == pytest.approx((1.1, 1.1, 1.1))
    assert one.rounds == 5


def test_less_is_better_where_it_is() -> None:
    one = ratio([2.0, 2.0], [1.0, 1.0], more=False)
    assert one is not None
    assert one.middle == 0.5


def test_only_rounds_that_both_have_count() -> None:
    one = ratio([1.0, 1.0, 9.0], [1.0, 1.0], more=True)
    assert one is not None
    assert (one.middle, one.rounds) == (1.0, 2)
    assert ratio([], [1.0], more=True) is None
    assert ratio([0.0], [1.0], more=True) is None


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=9))
def test_an_interval_holds_the_median_and_lies_within_the_values(values: list[float]) -> None:
    low, high = interval(values)
    assert min(values) <= low <= median(values) <= high <= max(values)
    assert interval(values) == (low, high), "the same numbers give the same interval"


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(1)
    ranges = [interval([draw.gauss(1, 0.1) for _ in range(9)]) for _ in range(60)]
    assert sum(low <= 1.0 <= high for low, high in ranges) >= 50


def test_scatter() -> None:
    assert scatter([1.0, 1.0]) == 0
    assert scatter([9.0, 10.0, 11.0]) == pytest.approx(0.2)
    assert scatter([]) == 0


def test_tokens_agree_until_the_first_other_one() -> None:
    assert common_start([[1, 2, 3], [4]], [[1, 2, 3], [4]]) == 1
    assert common_start([[1, 9, 3, 4]], [[1, 2, 3, 4]]) == 0.25
    assert common_start([[9], [1, 2, 3]], [[1], [1, 2, 3]]) == 0.75
