"""Shares cover the whole, in order, on any number of ranks and stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hfspeed.plan import Attention, Column, Gated, Heads, Keep, Local, Norm, Row, Stacked, shares


@given(own=st.integers(1, 20), ranks=st.integers(1, 9))
def test_spans_cover_the_whole(own, ranks):
    spans = [shares.span(own * ranks, rank, ranks) for rank in range(ranks)]
    assert spans == [(own * rank, own * (rank + 1)) for rank in range(ranks)]


@given(whole=st.integers(1, 9), repeats=st.integers(1, 4))
def test_more_ranks_than_things_repeat_them(whole, repeats):
    spans = [shares.span(whole, rank, whole * repeats) for rank in range(whole * repeats)]
    assert spans == [(thing, thing + 1) for thing in range(whole) for _ in range(repeats)]


def test_what_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="6 cannot be shared out over 4 ranks"):
        shares.span(6, 0, 4)


@given(vocab=st.integers(1, 99), ranks=st.integers(1, 9))
def test_vocabulary(vocab, ranks):
    spans = [shares.vocabulary(vocab, rank, ranks) for rank in range(ranks)]
    assert [row for start, stop in spans for row in range(start, stop)] == list(range(vocab))
    assert max(stop - start for start, stop in spans) == -(-vocab // ranks)


@given(layers=st.integers(1, 70), stages=st.integers(1, 8))
def test_cuts(layers, stages):
    stages = min(layers, stages)
    found = shares.cuts(layers, stages)
    assert [layer for start, stop in found for layer in range(start, stop)] == list(range(layers))
    sizes = [stop - start for start, stop in found]
    assert max(sizes) - min(sizes) <= 1
    assert shares.cuts(10, 4) == ((0, 2), (2, 5), (5, 8), (8, 10))


def test_parts():
    heads = Heads("q", ("a", "b", "c"), 8, 4, 2, 5, 3, False, True)
    assert shares.parts(heads) == (20, 10, 6)
    assert shares.widths(heads, 2) == (10, 5, 3)
    assert shares.widths(heads, 4) == (5, 5, 3)
    assert shares.part_spans(heads, 3, 4) == ((15, 20), (5, 10), (3, 6))
    packed = Stacked("p", ("p",), 8, (4, 8), False, True)
    assert shares.widths(packed, 2) == (2, 4)
    assert shares.part_spans(Stacked("p", ("p",), 8, (4, 8), False, False), 1, 2) == ((0, 4), (0, 8))


@pytest.mark.parametrize(
    ("op", "able"),
    [
        (Column("x", 8, 24, False, 6), (1, 2, 3, 6)),
        (Row("x", 6, 8, False), (1, 2, 3, 6)),
        (Attention("x", 8, 2, 4, 4, 1.0), (1, 2, 4, 8)),
        (Attention("x", 6, 3, 4, 4, 1.0), (1, 3, 6)),
        (Norm("x", 8, 1e-5, "plain", 2), (1, 2, 4, 6, 8)),
        (Keep("x", 3), (1, 3, 6)),
        (Local("x", "heads", 2), (1, 2, 4, 6, 8)),
        (Gated("x", "silu"), tuple(range(1, 9))),
        (Attention("x", 8, 2, 4, 4, 1.0, split=False), tuple(range(1, 9))),
    ],
)
def test_workable(op, able):
    assert shares.workable(op, 8) == able
