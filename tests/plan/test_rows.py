"""Orders of rows as runs: short, and exactly what they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hfspeed.plan import rows


@given(order=st.permutations(range(12)))
def test_runs_stand_for_the_order(order):
    found = rows.runs(order)
    assert rows.is_order(found, 12)
    assert (rows.order(found) or list(range(12))) == order
    assert [rows.read(rows.shown(run)) for run in found] == list(found)


def test_runs_are_short():
    assert rows.runs(range(12)) == ()
    assert rows.runs([*range(8, 12), *range(8)]) == ((8, 12, 1), (0, 8, 1))
    assert rows.runs([*range(0, 12, 2), *range(1, 12, 2)]) == ((0, 11, 2), (1, 12, 2))
    starts = [head * 8 + part * 2 for part in (0, 2, 3) for head in range(3)]
    grouped = [row for start in starts for row in (start, start + 1)]
    assert len(rows.runs(grouped)) == 9


def test_what_is_no_order():
    assert not rows.is_order(((0, 4, 1), (3, 8, 1)), 8)
    assert not rows.is_order(((0, 8, 1),), 9)
    assert not rows.is_order(((0, 8, 0),), 8)
    assert not rows.is_order(((-4, 4, 1),), 8)
