"""How whole sizes are shared out over ranks, and decoder layers over stages: one arithmetic for every builder."""

from __future__ import annotations

from itertools import pairwise

from hfspeed.plan import segments
from hfspeed.plan.ops import (
    Attention,
    Column,
    Experts,
    Heads,
    Keep,
    Local,
    Norm,
    Op,
    Recurrence,
    Row,
    Share,
    Stacked,
)
from hfspeed.plan.segments import Segment, Span, span

__all__ = ["Segment", "Span", "span"]


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
    if isinstance(op, Stacked) and op.segments:
        raise ValueError(f"{op.path}: a rank holds several ranges of a part")
    if isinstance(op, Stacked):
        return tuple(span(size, rank, ranks) for size in op.sizes)
    query, key = span(op.heads, rank, ranks), span(op.kv_heads, rank, ranks)
    return (
        (query[0] * op.head_size, query[1] * op.head_size),
        (key[0] * op.head_size, key[1] * op.head_size),
        (key[0] * op.value_size, key[1] * op.value_size),
    )


def part_pieces(op: Stacked | Heads, rank: int, ranks: int) -> tuple[tuple[Span, ...], ...]:
    """The rows of each part that ``rank`` holds, as ranges counted from the start of that part."""
    if isinstance(op, Stacked) and op.segments:
        return tuple(segments.own(part, rank, ranks) for part in segments.parted(op.segments, op.sizes))
    return tuple((one,) for one in part_spans(op, rank, ranks))


def rows_of(op: Column | Share, rank: int, ranks: int) -> tuple[Span, ...]:
    """The rows that ``rank`` holds of what is split along one dimension."""
    parts_of = op.segments if op.segments or isinstance(op, Share) else ((op.outputs, op.units),)
    return segments.own(parts_of, rank, ranks)


def own_ranges(op: Op | None, part: int | None, rank: int, ranks: int) -> tuple[tuple[Span, ...], int]:
    """What ``rank`` picks of a tensor that is split segment by segment, and along which dimension; else nothing."""
    if ranks == 1:
        return (), 0
    match op:
        case Share():
            return rows_of(op, rank, ranks), op.dim
        case Column() if op.segments:
            return rows_of(op, rank, ranks), 0
        case Stacked() if op.segments:
            return part_pieces(op, rank, ranks)[part or 0], 0
    return (), 0


def counted(op: Local, rank: int, ranks: int) -> int:
    """What the attribute says on ``rank``."""
    return sum(stop - start for start, stop in segments.own(op.segments or ((op.whole, op.whole),), rank, ranks))


def own_state(op: Recurrence, ranks: int) -> tuple[int, ...]:
    """The shape of a state on one rank."""
    return (segments.count(op.segments, ranks), *op.state[1:]) if op.segments else op.state


def widths(op: Stacked | Heads, ranks: int) -> tuple[int, ...]:
    """The widths of the parts on one rank: what ``name_sizes`` promises."""
    return tuple(sum(stop - start for start, stop in part) for part in part_pieces(op, 0, ranks))


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
        case Recurrence(segments=parts_of) | Share(segments=parts_of) if parts_of:
            finest = isinstance(op, Share) or segments.units(parts_of) % ranks == 0
            return finest and all(_either(units, ranks) for _, units in parts_of)
        case Column(segments=parts_of) | Stacked(split=True, segments=parts_of) | Local(segments=parts_of) if parts_of:
            return all(_either(units, ranks) for _, units in parts_of)
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
