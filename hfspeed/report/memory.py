"""The weights of every rank as bars on one scale, by what they are for."""

from __future__ import annotations

from dataclasses import dataclass

from hfspeed.plan.holdings import Holding, Holdings

PARTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "table": ("token table and output projection", ("embed", "head")),
    "heads": ("query, key and value projections", ("heads",)),
    "experts": ("experts", ("experts",)),
    "linear": ("other projections", ("column", "row", "whole", "stacked")),
    "rest": ("norms and what stays as written", ()),
}
"""What weights are for: a name for styles, words, and the kinds of ops."""


@dataclass(frozen=True)
class Segment:
    """A part of a bar; lengths are in hundredths of the longest bar."""

    part: str
    words: str
    bytes: int
    start: float
    length: float


@dataclass(frozen=True)
class Bar:
    """Some ranks of one stage, which hold equally much."""

    held: Holding
    segments: tuple[Segment, ...]

    @property
    def ranks(self) -> int:
        """How many they are."""
        start, stop = self.held.ranks
        return stop - start

    @property
    def name(self) -> str:
        """Which they are: ``stage 0, ranks 0–3``."""
        start, stop = self.held.ranks
        which = f"rank {start}" if self.ranks == 1 else f"ranks {start}–{stop - 1}"
        return f"stage {self.held.stage}, {which}"


def bars(held: Holdings) -> list[Bar]:
    """A bar for each line of the table."""
    longest = max((one.bytes for one in held.held), default=0) or 1
    return [Bar(one, tuple(_segments(one, longest))) for one in held.held]


def shown(found: list[Bar]) -> dict[str, str]:
    """The parts that occur in any bar, in order, with their words: the key of the picture."""
    there = {segment.part for bar in found for segment in bar.segments}
    return {part: words for part, (words, _) in PARTS.items() if part in there}


def _segments(one: Holding, longest: int) -> list[Segment]:
    sizes = dict.fromkeys(PARTS, 0)
    home = {kind: part for part, (_, kinds) in PARTS.items() for kind in kinds}
    for kind, count in one.kinds:
        sizes[home.get(kind, "rest")] += count
    found, at = [], 0.0
    for part, count in sizes.items():
        length = 100 * count / longest
        if count:
            found.append(Segment(part, PARTS[part][0], count, round(at, 3), round(length, 3)))
        at += length
    return found
