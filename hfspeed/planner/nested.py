"""Sizes that stand in lists and dictionaries of a configuration, each found and changed where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

Path = tuple[Any, ...]
"""Keys that lead to a size, or to a list with sizes, inside of a value."""
APART = 16
"""Sizes in one list that differ still do, by so much, when they are reduced."""


def sizes(value: Any, large: int) -> Iterator[Path]:
    """Where in a list or dictionary integers above ``large`` stand; a list counts as one, its entries hang together."""
    if isinstance(value, dict):
        for key, inner in value.items():
            within = (inner,) if _is_int(inner) else inner
            yield from ((key, *path) for path in sizes(within, large))
    elif type(value) in {list, tuple} and any(_is_large(entry, large) for entry in value):
        yield ()


def smaller(value: Any, path: Path, large: int, steps: Sequence[int]) -> Iterator[Any]:
    """``value`` with the integers above ``large`` that stand at ``path`` halved; then with each of ``steps`` instead.

    In a list, equal ones stay equal, and larger ones larger.
    """
    yield _put(value, path, large, lambda entry, _: entry // 2)
    for step in steps:
        yield _put(value, path, large, partial(_at_rank, step))


def _at_rank(least: int, _: int, rank: int) -> int:
    return least + APART * rank


def _put(value: Any, path: Path, large: int, change: Callable[[int, int], int]) -> Any:
    if path:
        return {**value, path[0]: _put(value[path[0]], path[1:], large, change)}
    entries = list(value) if isinstance(value, (list, tuple)) else [value]
    ranks = sorted({entry for entry in entries if _is_large(entry, large)})
    made = [change(entry, ranks.index(entry)) if entry in ranks else entry for entry in entries]
    return type(value)(made) if isinstance(value, (list, tuple)) else made[0]


def _is_large(value: Any, large: int) -> bool:
    return _is_int(value) and value > large


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
