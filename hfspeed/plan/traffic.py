"""What one token makes the ranks of a stage send each other, by kind of collective."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hfspeed.plan.ops import Embed, Experts, Head, Keep, Norm, Op, Row
from hfspeed.plan.places import Layout, rows


@dataclass(frozen=True)
class Sent:
    """So many collectives, and the bytes of one token in all of them together."""

    calls: int = 0
    bytes: int = 0

    def __add__(self, other: Sent) -> Sent:
        return Sent(self.calls + other.calls, self.bytes + other.bytes)


@dataclass(frozen=True)
class Traffic:
    """The messages of one token through one stage. Bytes are those of a message, not what its algorithm moves.

    Attributes:
        reduce: sums over ranks (all-reduce).
        gather: values put together from shares (all-gather).
        exchange: tokens sent to the ranks of their experts and back (all-to-all); an upper bound, since several experts
            of a token may be on one rank.
        logits: the gather of logits, for tokens that one is chosen after.
        hand_on: what goes to the next stage.
    """

    reduce: Sent = Sent()
    gather: Sent = Sent()
    exchange: Sent = Sent()
    logits: Sent = Sent()
    hand_on: Sent = Sent()


def traffic(ops: Iterable[Op], layout: Layout, item: int, wide: Callable[[str], int], size: int, last: bool) -> Traffic:
    """The traffic of a stage.

    Args:
        ops: those of the stage.
        layout: ranks and stages.
        item: bytes of an element.
        wide: the width of what a kept module at a path reads.
        size: the width of what crosses a cut.
        last: nothing follows this stage.
    """
    sent = {"reduce": Sent(), "gather": Sent(), "exchange": Sent(), "logits": Sent()}
    for op in ops:
        for kind, elements, calls in _of(op, layout, wide):
            sent[kind] += Sent(calls, elements * item)
    return Traffic(**sent, hand_on=Sent() if last else Sent(1, size * item))


def _of(op: Op, layout: Layout, wide: Callable[[str], int]) -> list[tuple[str, int, int]]:
    if isinstance(op, Experts):
        if layout.replicas > 1:
            away = 1 - 1 / layout.spread
            return [("exchange", round(2 * min(op.top_k, layout.spread) * op.inputs * away), 2)]
        return [("reduce", op.inputs, 1)] if layout.devices > 1 else []
    if layout.ranks == 1:
        return []
    match op:
        case Row():
            return [("reduce", op.outputs, 1)]
        case Embed():
            return [("reduce", op.size, 1)]
        case Norm() if op.units:
            return [("gather", op.size, 1)]
        case Keep() if op.units:
            return [("gather", wide(op.path), 1)]
        case Head():
            return [("logits", rows(op.vocab, layout.ranks), 1)]
    return []
