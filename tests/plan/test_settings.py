"""Plain values as words, and back."""

from __future__ import annotations

import math

import pytest

from hfspeed.plan.settings import read, shown


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (None, "none"),
        (True, "yes"),
        (False, "no"),
        ("silu", "silu"),
        (0.5, "0.5"),
        ((0.0, math.inf), "0.0:inf"),
        (-1e-6, "-1e-06"),
    ],
)
def test_there_and_back(value, word):
    assert shown("name", value) == f"name={word}"
    assert read(f"name={word}") == ("name", value)


@pytest.mark.parametrize("value", ["Not a word", "yes", [1.0], {"a": 1}])
def test_what_a_plan_cannot_hold(value):
    with pytest.raises((ValueError, TypeError)):
        shown("name", value)
