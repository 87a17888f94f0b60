"""Module paths that differ only in numbers, told as one: ``model.layers.[0-31].mlp``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence

Numbers = tuple[int, ...]
NUMBER = "\0"
"""Stands for a number while paths are merged; occurs in no path, as the star does in claims."""


def merge(paths: Iterable[str]) -> list[str]:
    """The fewest patterns that name exactly these paths, in the order in which each shape first occurs."""
    shapes: dict[str, set[Numbers]] = {}
    for path in paths:
        shapes.setdefault(shape(path, NUMBER), set()).add(numbers(path))
    return [_filled(form, lists) for form, found in shapes.items() for lists in _products(found)]


def expand(pattern: str) -> list[str]:
    """The paths that a pattern names, in order."""
    pieces = re.split(r"\[([^\]]*)\]", pattern)
    lists = [_numbers_of(piece) for piece in pieces[1::2]]
    return [
        "".join(text + (str(chosen[at]) if at < len(chosen) else "") for at, text in enumerate(pieces[::2]))
        for chosen in itertools.product(*lists)
    ]


def shape(path: str, mark: str = "*") -> str:
    """The path with ``mark`` for every number."""
    return ".".join(mark if piece.isdigit() else piece for piece in path.split("."))


def numbers(path: str) -> Numbers:
    """The numbers in the path."""
    return tuple(int(piece) for piece in path.split(".") if piece.isdigit())


def ranges(found: Sequence[int]) -> str:
    """Sorted numbers in words: ``0-31``, ``0-24/2`` for every second one, ``0,3,7``."""
    told, at = [], 0
    while at < len(found):
        step = found[at + 1] - found[at] if at + 1 < len(found) else 1
        end = at
        while end + 1 < len(found) and found[end + 1] - found[end] == step:
            end += 1
        # Two numbers with a gap are no progression yet; the second may start one.
        if end - at < 2 and step > 1:
            end = at
        if end == at:
            told.append(str(found[at]))
        else:
            told.append(f"{found[at]}-{found[end]}" + (f"/{step}" if step > 1 else ""))
        at = end + 1
    return ",".join(told)


def _numbers_of(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?:/(\d+))?)?", part)
        if match is None:
            raise ValueError(f"[{text}] is no list of numbers; expected for example [0-3,5]")
        start, end, step = match.groups()
        found += range(int(start), int(end or start) + 1, int(step or 1))
    return found


def _products(found: set[Numbers]) -> list[tuple[tuple[int, ...], ...]]:
    """Tuples of lists whose products together are exactly ``found``."""
    lists = tuple(tuple(sorted(set(column))) for column in zip(*found, strict=True))
    size = 1
    for column in lists:
        size *= len(column)
    if size == len(found):
        return [lists]
    by_rest: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for first in lists[0]:
        rest = {numbers[1:] for numbers in found if numbers[0] == first}
        for product in _products(rest):
            by_rest.setdefault(product, []).append(first)
    return [(tuple(firsts), *rest) for rest, firsts in by_rest.items()]


def _filled(form: str, lists: tuple[tuple[int, ...], ...]) -> str:
    told = (ranges(column) for column in lists)
    return ".".join(_bracketed(next(told)) if piece == NUMBER else piece for piece in form.split("."))


def _bracketed(text: str) -> str:
    return text if text.isdigit() else f"[{text}]"


def outer(path: str) -> list[str]:
    """The paths that ``path`` lies below, outermost first."""
    pieces = path.split(".")
    return [".".join(pieces[:depth]) for depth in range(1, len(pieces))]


def below(found: Iterable[str]) -> dict[str, list[str]]:
    """The paths that lie below each path, told from there."""
    lower: dict[str, list[str]] = {}
    for path in found:
        for above in outer(path):
            lower.setdefault(above, []).append(path[len(above) + 1 :])
    return lower


def within(path: str, above: Iterable[str]) -> bool:
    """Whether ``path`` is one of ``above``, or below one."""
    return any(path == stem or path.startswith(f"{stem}.") for stem in above)


def parent(path: str) -> str:
    """The path one level up; empty at the top."""
    return path.rpartition(".")[0]


def last(path: str) -> str:
    """The last name of ``path``."""
    return path.rpartition(".")[2]


def joined(above: str, name: str) -> str:
    """``above.name``, or ``name`` at the top."""
    return f"{above}.{name}" if above else name
