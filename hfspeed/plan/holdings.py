"""Who holds what: parameters, bytes, cache, state and messages of every rank and stage, by arithmetic alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from hfspeed.plan import shares
from hfspeed.plan.ops import Attention, Embed, Experts, History, Op, Recurrence, Whole
from hfspeed.plan.places import Layout, Places, share
from hfspeed.plan.plan import Plan
from hfspeed.plan.shares import Span
from hfspeed.plan.tensors import BITS, Piece, Sources, Tensor, plain
from hfspeed.plan.traffic import Traffic, traffic
from hfspeed.plan.weights import Weight

ALIGNMENT, ELEMENT = 16, 8
"""Bytes at whose multiples each state begins; bytes of an element of what modules on whole sequences were given."""


@dataclass(frozen=True)
class Holding:
    """What each of some ranks of one stage holds; they hold equally much.

    Attributes:
        stage / ranks / layers: which; half-open.
        parameters: how many numbers, before any quantisation. Rows that only fill up token tables count.
        weights: bytes by dtype, as served.
        reads: bytes of weights that one token makes this rank read, experts that it does not choose left out.
        cache: bytes of keys and values of one token.
        windowed: the part of ``cache`` that is needed only for so many last tokens, by that number.
        state: bytes of one sequence, whatever its length.
        history: bytes per token of the longest sequence, kept for every sequence.
        traffic: messages of one token.
        kinds: bytes of weights by the kind of op that they belong to, as a plan calls it.
    """

    stage: int
    ranks: Span
    layers: Span
    parameters: int
    weights: tuple[tuple[str, int], ...]
    reads: int
    cache: int
    windowed: tuple[tuple[int, int], ...]
    state: int
    history: int
    traffic: Traffic
    kinds: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> int:
        """Of all weights."""
        return sum(count for _, count in self.weights)


@dataclass(frozen=True)
class Holdings:
    """Every rank of every stage.

    Attributes:
        layout: how many there are.
        dtype: of activations and cache.
        parameters: of the whole model, tied ones once.
        held: by stage, then by rank.
    """

    layout: Layout
    dtype: str
    parameters: int
    held: tuple[Holding, ...]

    def balance(self) -> float:
        """How many times the mean the stage with the most weights holds."""
        return _above_mean([one.bytes for one in self._stages()])

    def pace(self) -> float:
        """The same of the bytes that a token makes a stage read: the slowest stage sets the pace."""
        return _above_mean([one.reads for one in self._stages()])

    def _stages(self) -> list[Holding]:
        """The heaviest ranks of each stage."""
        first: dict[int, Holding] = {}
        for one in self.held:
            first.setdefault(one.stage, one)
        return list(first.values())


def holdings(plan: Plan, sources: Sources, layout: Layout, *, kernel_heads: tuple[int, ...] = ()) -> Holdings:
    """What every rank holds under a layout that the plan can be built on.

    Args:
        plan: the plan.
        sources: its tensors.
        layout: ranks and stages; `hfspeed.plan.laws.division` and `partition` say whether they are possible.
        kernel_heads: the head sizes that the attention kernel takes, others are padded; none means any.
    """
    stages = layout.stages
    places = Places(plan, stages)
    size_of = _Sizes(plan, sources)
    per_stage: list[list[Op]] = [[] for _ in range(stages)]
    for op in plan.ops:
        for stage in places.stages(op.path):
            per_stage[stage].append(op)
    owned: list[list[_Owned]] = [[] for _ in range(stages)]
    for stage, one in _held(plan, places):
        owned[stage].append(one)
    found: list[Holding] = []
    item = BITS[sources.dtype] // 8
    for stage, ops in enumerate(per_stage):
        sent = traffic(ops, layout, item, size_of.width, plan.size, stage == stages - 1)
        for ranks in _alike(plan, layout):
            numbers, weights, reads, kinds = _weights(owned[stage], size_of, layout, ranks[0])
            cache, windowed = _cache(ops, layout, item, kernel_heads)
            state, history = _states(ops, sources, layout.ranks)
            layers = places.cuts[stage] if stage < len(places.cuts) else (0, 0)
            found.append(
                Holding(stage, ranks, layers, numbers, weights, reads, cache, windowed, state, history, sent, kinds)
            )
    total = sum(size_of(weight).elements for weight in plan.weights)
    return Holdings(layout, sources.dtype, total, tuple(found))


@dataclass(frozen=True)
class _Owned:
    """A weight on some stage, the op that it belongs to, and whether every token reads all of it."""

    weight: Weight
    op: Op | None
    read: bool


class _Sizes:
    """The tensor of each weight, found under any of its names; what is nowhere counts as nothing."""

    def __init__(self, plan: Plan, sources: Sources) -> None:
        self.known: Mapping[str, Tensor] = sources.tensors
        self.ties = {tie.target: tie.source for tie in plan.ties}
        self.by_module: dict[str, list[Tensor]] = {}
        for weight in plan.weights:
            self.by_module.setdefault(weight.target.rpartition(".")[0], []).append(self(weight))

    def __call__(self, weight: Weight) -> Tensor:
        for name in (weight.source, weight.shared, self.ties.get(weight.source, "")):
            if name in self.known:
                return self.known[name]
        return Tensor((0,), ())

    def width(self, path: str) -> int:
        """The longest row of what a module holds, which is what it reads."""
        return max((tensor.shape[-1] for tensor in self.by_module.get(path, ()) if tensor.shape), default=0)


def _held(plan: Plan, places: Places) -> Iterator[tuple[int, _Owned]]:
    """Every weight with each stage that has it; a tied one again where the other is elsewhere."""
    tied = {tie.target: tie.source for tie in plan.ties}
    for weight in plan.weights:
        op = places.owner(weight.target)
        own = places.stages(weight.target)
        also = places.stages(tied[weight.source]) if weight.source in tied else ()
        looked_up = isinstance(op, Embed)  # a token reads one row, but a projection reads them all
        for stage in sorted({*own, *also}):
            yield stage, _Owned(weight, op, not looked_up or stage in also)


def _alike(plan: Plan, layout: Layout) -> list[Span]:
    """Runs of ranks that hold equally much: they differ only in how many whole experts they have."""
    counts = {op.count for op in plan.ops if isinstance(op, Experts)} if layout.spread > 1 else set()
    first = {rank for count in counts if (rank := count % layout.spread)}
    starts = sorted({0, *first})
    return list(zip(starts, [*starts[1:], layout.devices], strict=True))


def _weights(
    owned: Iterable[_Owned], size_of: _Sizes, layout: Layout, rank: int
) -> tuple[int, tuple[tuple[str, int], ...], int, tuple[tuple[str, int], ...]]:
    """Parameters, bytes by dtype, bytes read for one token, and bytes by kind of op."""
    numbers, reads = Fraction(0), Fraction(0)
    held: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for one in owned:
        tensor = size_of(one.weight)
        own = share(one.op, one.weight, layout, rank)
        numbers += tensor.elements * (own[0] * own[1] if len(tensor.shape) > 1 else own[0])
        chosen = Fraction(one.op.top_k, one.op.count) if isinstance(one.op, Experts) else Fraction(1)
        wide = isinstance(one.op, Whole) and one.op.wide
        for piece in plain(tensor.shape, "float32").pieces if wide else tensor.pieces:
            count = piece.bytes * _along(piece, own)
            held[piece.dtype] += math.ceil(count)
            kinds[type(one.op).__name__.lower() if one.op is not None else "keep"] += math.ceil(count)
            reads += count * chosen if one.read else 0
    return round(numbers), tuple(held.most_common()), round(reads), tuple(kinds.most_common())


def _along(piece: Piece, own: tuple[Fraction, Fraction]) -> Fraction:
    outputs, inputs = own
    return {"nothing": Fraction(1), "outputs": outputs, "inputs": inputs, "both": outputs * inputs}[piece.over]


def _cache(
    ops: Iterable[Op], layout: Layout, item: int, kernel_heads: tuple[int, ...]
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Bytes of keys and values per token, and what of them lies in windows."""
    every = 0
    windows: Counter[int] = Counter()
    for op in ops:
        if isinstance(op, Attention):
            start, stop = shares.span(op.kv_heads, 0, layout.ranks if op.split else 1)
            wide = max(op.head_size, op.value_size)
            size = min((known for known in kernel_heads if known >= wide), default=wide)
            count = op.calls * (stop - start) * 2 * size * item
            every += count
            if (span := op.window or op.chunk) is not None:
                windows[span] += count
    return every, tuple(sorted(windows.items()))


def _states(ops: Iterable[Op], sources: Sources, ranks: int) -> tuple[int, int]:
    """Bytes per sequence, and bytes per token of the longest sequence."""
    item = BITS[sources.dtype] // 8
    state = history = 0
    for op in ops:
        if isinstance(op, Recurrence):
            element = max(item, 4) if op.kind in sources.exact else item
            state += op.calls * -(-math.prod(shares.own_state(op, ranks)) * element // ALIGNMENT) * ALIGNMENT
        if isinstance(op, History):
            state += ALIGNMENT
            history += sum(_wide(told) * ELEMENT for told in op.inputs if told != "none")
    return state, history


def _wide(told: str) -> int:
    """Elements per token of ``1xTx64``."""
    return math.prod(int(size.lstrip("~")) for size in told.partition("_")[0].split("x") if size != "T")


def _above_mean(counts: list[int]) -> float:
    return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0
