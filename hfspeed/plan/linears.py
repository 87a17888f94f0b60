"""Ops of a plan that are linears: their weights are ``[outputs, inputs]``, and sizes are whole, before any split."""

from __future__ import annotations

from dataclasses import dataclass

from hfspeed.plan.rows import Run
from hfspeed.plan.segments import Segment


@dataclass(frozen=True)
class Column:
    """A linear whose outputs are split over the ranks, in ``units`` equal blocks that stay together.

    A packed one has ``segments``: each is split by itself, in blocks of its own or not at all.
    """

    path: str
    inputs: int
    outputs: int
    bias: bool
    units: int
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Row:
    """A linear that reads a split value; its partial sums are added over the ranks."""

    path: str
    inputs: int
    outputs: int
    bias: bool


@dataclass(frozen=True)
class Whole:
    """A linear that every rank holds in full.

    With ``matrix`` it is no child of the author's: it is a parameter, called so, of the module that ``path`` lies in,
    with which the forward multiplied by itself, and ``vector`` is one that it added. The promise is then the last name
    of ``path``. ``turned``: the matrix is ``[inputs, outputs]``; ``wide``: it is brought to float32 first.
    """

    path: str
    inputs: int
    outputs: int
    bias: bool
    matrix: str = ""
    vector: str = ""
    turned: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Stacked:
    """Several linears of one input, or one packed linear, as one GEMM of ``len(sizes)`` parts.

    Promises the author's module two names: ``name`` (last part of ``path``; called with the input
    it returns the parts side by side) and ``name_sizes`` (the parts' widths on this rank).
    With ``split`` each part is split over the ranks by itself; otherwise every rank holds it all.
    ``parts`` are child names; one name with several sizes is a packed projection kept as one, and ``rows`` is
    then the order in which its rows are held (none: as they are). ``segments`` are those of all parts, one behind the
    other, where a part is not split as one.
    """

    path: str
    parts: tuple[str, ...]
    inputs: int
    sizes: tuple[int, ...]
    bias: bool
    split: bool
    rows: tuple[Run, ...] = ()
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True)
class Heads:
    """Query, key and value projections as one GEMM, split by heads; key heads fewer than ranks repeat.

    Promises ``name`` and ``name_sizes`` as `Stacked` does. ``parts`` are the q, k, v child names; or the one name of
    a packed projection, and ``rows`` is then the order of its rows that makes it q, k, v, head by head. A third name
    ``name_head_sizes`` gives the size of one head of each.
    """

    path: str
    parts: tuple[str, ...]
    inputs: int
    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    bias: bool
    split: bool
    rows: tuple[Run, ...] = ()


def taken(op: object) -> tuple[str, ...]:
    """Names of bare parameters that ``op`` takes from the module it lies in."""
    return tuple(name for name in (op.matrix, op.vector) if name) if isinstance(op, Whole) else ()
