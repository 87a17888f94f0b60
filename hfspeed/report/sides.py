"""Two texts side by side, line by line, with Python's colours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

AROUND = 3
"""Unchanged lines shown around a change; more of them can be unfolded."""


@dataclass(frozen=True)
class Row:
    """One line of both texts; a side that has none is ``None``. Numbers count in the author's file, and from 1."""

    before: Markup | None
    after: Markup | None
    number: int | None
    new: int | None

    @property
    def same(self) -> bool:
        """Whether the sides are equal."""
        return self.before is not None and self.before == self.after


@dataclass(frozen=True)
class Run:
    """Rows that belong together; ``folded`` ones are unchanged and far from any change."""

    folded: bool
    rows: tuple[Row, ...]


def coloured(text: str) -> list[Markup]:
    """The lines of a Python text as HTML; everything in it is escaped."""
    shown = highlight(text, PythonLexer(stripnl=False, ensurenl=False), HtmlFormatter(nowrap=True))
    # what has been through the formatter is escaped, and no span goes beyond its line
    return [Markup(line) for line in shown.split("\n")]  # noqa: S704


def sides(before: str, after: str, first: int = 1) -> list[Run]:
    """``before`` and ``after`` side by side; ``first`` is the number of the first line of ``before`` in its file."""
    return list(_folded(list(_rows(before.strip("\n"), after.strip("\n"), first))))


def _rows(before: str, after: str, first: int) -> Iterator[Row]:
    old, new = coloured(before), coloured(after)
    matcher = SequenceMatcher(None, before.split("\n"), after.split("\n"), autojunk=False)
    for _, start, stop, begin, end in matcher.get_opcodes():
        for at in range(max(stop - start, end - begin)):
            left, right = start + at, begin + at
            here, there = left < stop, right < end
            yield Row(
                old[left] if here else None,
                new[right] if there else None,
                first + left if here else None,
                right + 1 if there else None,
            )


def _folded(rows: list[Row]) -> Iterator[Run]:
    near = [any(not other.same for other in rows[max(0, at - AROUND) : at + AROUND + 1]) for at in range(len(rows))]
    start = 0
    for at in range(1, len(rows) + 1):
        if at == len(rows) or near[at] != near[start]:
            yield Run(not near[start] and at - start > AROUND, tuple(rows[start:at]))
            start = at
