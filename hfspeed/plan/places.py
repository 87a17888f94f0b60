"""Which rank and which stage has what part of each tensor, as vLLM's layers keep it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from hfspeed.plan import paths, segments, shares
from hfspeed.plan.filling import LINEAR
from hfspeed.plan.ops import Attention, Column, Embed, Experts, Head, Heads, Keep, Norm, Op, Row, Share, Stacked
from hfspeed.plan.plan import Plan
from hfspeed.plan.weights import Weight

ROWS = 64
"""Token tables are made longer until this, and the number of ranks, divide their rows."""
HOLDERS = (*LINEAR, Embed, Head, Norm, Experts, Keep, Share)
"""Ops that parameters belong to by their path."""


@dataclass(frozen=True)
class Layout:
    """How many ranks split the tensors, how many stages there are, and how many ranks have whole experts.

    With ``spread`` the experts go over the ranks of several replicas of all the rest: it is a multiple of ``ranks``.
    """

    ranks: int = 1
    stages: int = 1
    spread: int = 1

    @property
    def devices(self) -> int:
        """Ranks of one stage."""
        return max(self.ranks, self.spread)

    @property
    def replicas(self) -> int:
        """How many times a stage has everything but experts."""
        return self.devices // self.ranks


Shares = tuple[Fraction, Fraction]
"""What one rank has along outputs and along inputs."""
WHOLE: Shares = (Fraction(1), Fraction(1))


def rows(vocab: int, ranks: int) -> int:
    """The rows of a token table with those that are added."""
    step = math.lcm(ROWS, ranks)
    return -(-vocab // step) * step


def share(op: Op | None, weight: Weight, layout: Layout, rank: int) -> Shares:
    """What ``rank`` has of a tensor that goes to ``op``."""
    ranks = layout.ranks
    match op:
        case Column(segments=cut) | Share(segments=cut) if cut:
            return Fraction(segments.count(cut, ranks), segments.rows(cut)), Fraction(1)
        case Column():
            return Fraction(1, ranks), Fraction(1)
        case Row():
            return Fraction(1), Fraction(1, ranks)
        case Stacked() | Heads():
            own, every = shares.widths(op, ranks), shares.parts(op)
            if len(op.parts) > 1 and weight.part is not None:
                own, every = (own[weight.part],), (every[weight.part],)
            return Fraction(sum(own), sum(every)), Fraction(1)
        case Embed() | Head():
            return Fraction(rows(op.vocab, ranks), op.vocab * ranks), Fraction(1)
        case Attention():
            return Fraction(1, ranks if op.split else 1), Fraction(1)
        case Experts():
            return _of_experts(op, weight, layout, rank)
    return WHOLE


def _of_experts(op: Experts, weight: Weight, layout: Layout, rank: int) -> Shares:
    """Whole experts, or a share of the width of each; a bias behind the sum over the width is on every rank."""
    count, width = Fraction(1), Fraction(1, layout.ranks)
    if layout.spread > 1:
        start, stop = shares.experts(op.count, rank, layout.spread)
        # experts kept apart are tensors of their own: each is held or not, and all of them together are the share
        count, width = Fraction(stop - start, op.count), Fraction(1)
    name = weight.target.removeprefix(f"{op.path}.")
    if name == op.down_bias:
        return count, Fraction(1)
    return (count, width) if name == op.down else (count * width, Fraction(1))


class Places:
    """Finds the op and the stages of each path of a plan."""

    def __init__(self, plan: Plan, stages: int) -> None:
        self.plan, self.every = plan, tuple(range(stages))
        self.owners: dict[str, Op] = {op.path: op for op in plan.ops if isinstance(op, HOLDERS)}
        self.owners |= {f"{op.path}.{op.sinks}": op for op in plan.ops if isinstance(op, Attention) and op.sinks}
        self.cuts: tuple[shares.Span, ...] = ((0, plan.stages.count if plan.stages else 0),)
        if plan.stages is not None:
            self.cuts = shares.cuts(plan.stages.count, stages)
        self.number = {layer: stage for stage, cut in enumerate(self.cuts) for layer in range(*cut)}

    def owner(self, target: str) -> Op | None:
        """The op whose parameter ``target`` is."""
        for path in (target, *reversed(paths.outer(target))):
            if path in self.owners:
                return self.owners[path]
        return None

    def stages(self, path: str) -> tuple[int, ...]:
        """The stages that have what is at ``path``; what belongs to no layer and no end is on all of them."""
        stages = self.plan.stages
        if stages is None or len(self.every) == 1:
            return self.every
        if path.startswith(f"{stages.layers}."):
            number = path[len(stages.layers) + 1 :].partition(".")[0]
            return (self.number[int(number)],) if number.isdigit() and int(number) in self.number else self.every
        above = {path, *paths.outer(path)}
        if above & set(stages.first):
            return self.every[:1]
        if above & {*stages.last, self.plan.wrapper.head}:
            return self.every[-1:]
        return self.every
