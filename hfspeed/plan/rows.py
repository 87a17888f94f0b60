"""The order of a packed projection's rows: runs of the author's rows, in the order in which the op holds them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Run = tuple[int, int, int]
"""``(start, stop, step)``, as in ``range``."""


def order(runs: Iterable[Run]) -> list[int]:
    """The author's row at each of the op's rows."""
    return [row for run in runs for row in range(*run)]


def runs(rows: Sequence[int]) -> tuple[Run, ...]:
    """The shortest runs that give ``rows``; none at all when the rows stand as they are."""
    if list(rows) == list(range(len(rows))):
        return ()
    found: list[Run] = []
    at = 0
    while at < len(rows):
        step = rows[at + 1] - rows[at] if at + 1 < len(rows) else 1
        end = at
        while step > 0 and end + 1 < len(rows) and rows[end + 1] - rows[end] == step:
            end += 1
        if end - at < 2 and step != 1:
            step, end = 1, at
        found.append((rows[at], rows[end] + 1, step))
        at = end + 1
    return tuple(found)


def is_order(found: Iterable[Run], count: int) -> bool:
    """Whether runs name each of ``count`` rows once; no runs do."""
    found = tuple(found)
    # Counted first: a range from a damaged plan could be too long to write out.
    if not found:
        return True
    sound = all(step > 0 and 0 <= start < stop for start, stop, step in found)
    return sound and sum(len(range(*run)) for run in found) == count and sorted(order(found)) == list(range(count))


def shown(run: Run) -> str:
    """``32:48``, or ``0:48:2`` for every second row."""
    start, stop, step = run
    return f"{start}:{stop}" if step == 1 else f"{start}:{stop}:{step}"


def read(text: str) -> Run:
    """The run that `shown` wrote."""
    start, stop, *step = (int(piece) for piece in text.split(":"))
    return start, stop, step[0] if step else 1
