"""Segments: which rows of a packed tensor a rank holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hfspeed.plan import Column, Keep, Local, Recurrence, Row, Share, Stacked, Whole, lines, shares
from hfspeed.plan.segments import count, own, parted, rows, units
from hfspeed.plan.unsplit import whole_mixers

PACKED = ((8, 4), (4, 1), (2, 2))
"""Eight rows in four blocks, four that everybody has, and one row for each half."""


def test_every_rank_has_its_blocks():
    assert own(PACKED, 0, 2) == ((0, 4), (8, 12), (12, 13))
    assert own(PACKED, 1, 2) == ((4, 8), (8, 12), (13, 14))
    assert own(PACKED, 3, 4) == ((6, 8), (8, 12), (13, 14))  # two ranks have the same of what has two blocks
    assert (count(PACKED, 2), rows(PACKED), units(PACKED)) == (9, 14, 4)


def test_parts_have_their_segments():
    assert parted(PACKED, (12, 2)) == [PACKED[:2], PACKED[2:]]
    with pytest.raises(ValueError, match="segments of 12 rows for a part of 10"):
        parted(PACKED, (10, 4))


def test_what_can_be_shared_out():
    column = Column("m.a", 6, 14, False, 4, PACKED)
    assert shares.workable(column, 8) == (1, 2, 4, 8)
    state = Recurrence("m", "scan", "ssd", (14, 2, 2), ("x",), segments=PACKED)
    assert shares.workable(state, 8) == (1, 2, 4)  # heads do not repeat
    assert shares.own_state(state, 2) == (9, 2, 2)
    assert shares.counted(Local("m", "width", 14, PACKED), 1, 2) == 9
    stacked = Stacked("m.ab", ("a", "b"), 6, (12, 2), False, True, segments=PACKED)
    assert shares.part_pieces(stacked, 1, 2) == (((4, 8), (8, 12)), ((1, 2),))
    assert shares.widths(stacked, 2) == (8, 1)


@pytest.mark.parametrize(
    "op",
    [
        Column("m.a", 6, 14, False, 4, PACKED),
        Stacked("m.ab", ("a", "b"), 6, (12, 2), False, True, segments=PACKED),
        Recurrence("m", "scan", "ssd", (14, 2, 2), ("x",), segments=PACKED),
        Share("m.A_log", 0, PACKED),
        Share("m.scale", 2, PACKED, stored=False),
        Local("m", "width", 14, PACKED),
    ],
)
def test_lines_read_back(op):
    block, name = lines.where(op)
    assert lines.parse(block, name, type(op).__name__.lower(), lines.words(op)) == op
    assert lines.placement(op, 2)


def test_mixers_stay_whole_where_weights_cannot_be_cut(plan):
    ops = (
        Column("m.in_proj", 6, 14, False, 4, PACKED),
        Recurrence("m", "scan", "ssd", (4, 2, 2), ("x",), segments=((4, 4),)),
        Share("m.A_log", 0, ((4, 4),)),
        Share("m.scale", 2, ((14, 2),), stored=False),
        Local("m", "heads", 4),
        Keep("m.norm", 4),
        Row("m.out_proj", 8, 6, False),
        Row("other.out_proj", 8, 6, False),
    )
    assert whole_mixers(replace(plan, ops=ops)).ops == (
        Whole("m.in_proj", 6, 14, False),
        Recurrence("m", "scan", "ssd", (4, 2, 2), ("x",)),
        Keep("m.A_log"),
        Keep("m.norm"),
        Whole("m.out_proj", 8, 6, False),
        ops[-1],
    )
    assert whole_mixers(plan) is plan
