"""How the rows of a packed tensor go over the ranks: segment by segment, each in blocks that stay together."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""A half-open range of rows, units or layers: ``(start, stop)``."""
Segment = tuple[int, int]
"""``(rows, units)``: so many rows in so many equal blocks; one block is whole on every rank."""


def span(whole: int, rank: int, ranks: int) -> Span:
    """The own share of ``whole`` equal things; more ranks than things means that several ranks hold the same one.

    Raises:
        ValueError: neither number divides the other.
    """
    if whole % ranks == 0:
        own = whole // ranks
        return rank * own, (rank + 1) * own
    if whole and ranks % whole == 0:
        own = rank * whole // ranks
        return own, own + 1
    raise ValueError(f"{whole} cannot be shared out over {ranks} ranks: neither divides the other")


def own(segments: Iterable[Segment], rank: int, ranks: int) -> tuple[Span, ...]:
    """The rows that ``rank`` holds, as one range per segment."""
    found, at = [], 0
    for rows, units in segments:
        start, stop = span(units, rank, ranks)
        found.append((at + start * (rows // units), at + stop * (rows // units)))
        at += rows
    return tuple(found)


def count(segments: Iterable[Segment], ranks: int) -> int:
    """How many rows a rank holds."""
    return sum(stop - start for start, stop in own(segments, 0, ranks))


def rows(segments: Iterable[Segment]) -> int:
    """How many rows there are."""
    return sum(size for size, _ in segments)


def units(segments: Iterable[Segment]) -> int:
    """The blocks of what is split most finely: what ranks have to divide."""
    return max((found for _, found in segments), default=1)


def parted(segments: Iterable[Segment], sizes: Iterable[int]) -> list[tuple[Segment, ...]]:
    """Segments that lie one behind the other, each with the part of so many rows that it belongs to.

    Raises:
        ValueError: a segment lies in two parts.
    """
    left, found = list(segments), []
    for size in sizes:
        mine: list[Segment] = []
        while left and rows(mine) < size:
            mine.append(left.pop(0))
        if rows(mine) != size:
            raise ValueError(f"segments of {rows(mine)} rows for a part of {size}")
        found.append(tuple(mine))
    return found
