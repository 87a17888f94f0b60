"""How whole sizes are shared out over ranks, and decoder layers over stages: one arithmetic for every builder."""

from __future__ import annotations

from itertools import pairwise

from hfspeed.plan.ops import Attention, Column, Experts, Heads, Keep, Local, Norm, Op, Row, Stacked

Span = tuple[int, int]
"""A half-open range of rows, units or layers: ``(start, stop)``."""


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


def vocabulary(vocab: int, rank: int, ranks: int) -> Span:
    """The own rows of a token table: equal shares rounded up, so the last ranks may hold fewer, or none."""
    own = -(-vocab // ranks)
    return min(rank * own, vocab), min((rank + 1) * own, vocab)


def parts(op: Stacked | Heads) -> tuple[int, ...]:
    """The whole widths of the op's parts, in their order."""
    if isinstance(op, Stacked):
        return op.sizes
    return op.heads * op.head_size, op.kv_heads * op.head_size, op.kv_heads * op.value_size


def part_spans(op: Stacked | Heads, rank: int, ranks: int) -> tuple[Span, ...]:
    """The rows of each part that ``rank`` holds, counted from the start of that part."""
    if not op.split:
        return tuple((0, width) for width in parts(op))
    if isinstance(op, Stacked):
        return tuple(span(size, rank, ranks) for size in op.sizes)
    query, key = span(op.heads, rank, ranks), span(op.kv_heads, rank, ranks)
    return (
        (query[0] * op.head_size, query[1] * op.head_size),
        (key[0] * op.head_size, key[1] * op.head_size),
        (key[0] * op.value_size, key[1] * op.value_size),
    )


def widths(op: Stacked | Heads, ranks: int) -> tuple[int, ...]:
    """The widths of the parts on one rank: what ``name_sizes`` promises."""
    return tuple(stop - start for start, stop in part_spans(op, 0, ranks))


def head_sizes(op: Heads) -> tuple[int, int, int]:
    """The size of one head of query, key and value: what ``name_head_sizes`` promises."""
    return op.head_size, op.head_size, op.value_size


def cuts(layers: int, stages: int) -> tuple[Span, ...]:
    """The layers of each stage. What does not divide goes to the middle, since the ends have the tables to hold."""
    counts = [layers // stages] * stages
    for extra in range(layers % stages):
        counts[-2 - extra if stages > 1 else 0] += 1
    starts = [sum(counts[:stage]) for stage in range(stages + 1)]
    return tuple(pairwise(starts))


def experts(count: int, rank: int, ranks: int) -> Span:
    """The experts of one of ``ranks`` ranks among which whole experts are spread: the first ones may hold one more."""
    own, more = divmod(count, ranks)
    start = rank * own + min(rank, more)
    return start, start + own + (rank < more)


def divides(op: Op, ranks: int) -> bool:
    """Whether ``op`` can be built on this many ranks."""
    match op:
        case Column(units=units):
            return units % ranks == 0
        case Row(inputs=inputs):
            return inputs % ranks == 0
        case Experts(inner=inner):
            return inner % ranks == 0
        case Stacked(split=True, sizes=sizes):
            return all(size % ranks == 0 for size in sizes)
        case Heads(split=True) | Attention(split=True):
            return op.heads % ranks == 0 and _either(op.kv_heads, ranks)
        case Norm(units=units) | Keep(units=units):
            return not units or _either(units, ranks)
        case Local(whole=whole):
            return _either(whole, ranks)
    return True


def workable(op: Op, limit: int = 64) -> tuple[int, ...]:
    """The numbers of ranks, up to ``limit``, that ``op`` can be built on."""
    return tuple(ranks for ranks in range(1, limit + 1) if divides(op, ranks))


def _either(count: int, ranks: int) -> bool:
    return count % ranks == 0 or (count > 0 and ranks % count == 0)
