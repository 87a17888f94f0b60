"""Which keys a query sees by a mask function of transformers: all before it, a window, or the chunk that it lies in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hfspeed.recurrences.written import seen

FARTHEST = 1 << 18
"""Positions that are tried: a window or a chunk that is longer than this is none."""

Mask = Callable[[int, int, torch.Tensor, torch.Tensor], torch.Tensor]
"""``(batch, head, query, key)`` to what is seen; queries and keys are tensors of positions."""


@dataclass(frozen=True)
class Span:
    """What one mask lets a query see. Neither ``window`` nor ``chunk``: everything before it.

    Attributes:
        window: so many keys, the own one included.
        chunk: the keys of its own chunk of so many positions, up to its own.
        odd: it is none of these.
    """

    window: int | None = None
    chunk: int | None = None
    odd: bool = False

    @property
    def kind(self) -> str:
        """``"window"``, ``"chunk"``, ``"odd"``, or nothing where all before it is seen."""
        if self.odd:
            return "odd"
        return "window" if self.window is not None else "chunk" if self.chunk is not None else ""

    @property
    def size(self) -> int:
        """Of its window or chunk; 0 where it has none."""
        return next(iter(self.sizes), 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its window or chunk, if it has one."""
        return tuple(size for size in (self.window, self.chunk) if size is not None)

    def __str__(self) -> str:
        if self.odd:
            return "a mask of its own kind"
        if self.window is not None:
            return f"a window of {self.window}"
        return f"chunks of {self.chunk}" if self.chunk is not None else "everything before"


EVERYTHING = Span()
ODD = Span(odd=True)


def span_of(mask: Mask, tokens: int = 0, size: int | None = None) -> Span:
    """The span that a mask function makes, held against it row by row at places where it could differ.

    A function that differs between heads is odd. So is one that cannot be asked of any position, because it looks them
    up in a table of ``tokens``, unless it shows everything before there, or as far as its ``size`` goes.
    """
    try:
        if _of_table(mask):
            likely = [EVERYTHING] if size is None else [Span(window=size), Span(chunk=size)]
            queries = range(tokens)
            return next((one for one in likely if all(_holds(mask, one, query, tokens) for query in queries)), ODD)
        nearest = _first_hidden(mask)
        if nearest is None:
            likely = [EVERYTHING]
        elif nearest < 1:
            return ODD
        else:
            likely = [Span(window=nearest), Span(chunk=nearest)]
        return next((one for one in likely if all(_holds(mask, one, query) for query in _queries(nearest))), ODD)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return ODD


def sees(span: Span, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Whether queries at some positions see keys at others; both are broadcast, and the answer is boolean."""
    return seen(query, key, span.window, span.chunk)


def _of_table(mask: Mask) -> bool:
    try:
        _asked(mask, 0, torch.tensor([FARTHEST]), torch.tensor([FARTHEST]))
    except IndexError:
        return True
    return False


def _first_hidden(mask: Mask) -> int | None:
    """The first query that does not see the first key; in windows and chunks no later one does."""
    low, high = 0, FARTHEST
    if _asked(mask, 0, torch.tensor([high]), torch.tensor([0])).item():
        return None
    while low < high:
        middle = (low + high) // 2
        if _asked(mask, 0, torch.tensor([middle]), torch.tensor([0])).item():
            low = middle + 1
        else:
            high = middle
    return low


def _queries(size: int | None) -> list[int]:
    """Rows that tell masks of this size apart."""
    if size is None:
        return [0, 1, 2, 7, 64, 1000, 1024, 4095, 8192, 40_000, FARTHEST]
    near = [edge + by for edge in (0, size, 2 * size, 3 * size) for by in (-1, 0, 1)]
    return sorted({row for row in (*near, size + size // 2, 5 * size + 3) if row >= 0})


def _holds(mask: Mask, span: Span, query: int, most: int = 2 * FARTHEST) -> bool:
    row, keys = torch.tensor([query]), torch.arange(min(query + 4, most))
    wanted = sees(span, row, keys)
    return all(torch.equal(_asked(mask, head, row, keys), wanted) for head in (0, 1))


def _asked(mask: Mask, head: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    seen = torch.as_tensor(mask(0, head, query, key))
    return seen.bool().expand((query - key).shape)
