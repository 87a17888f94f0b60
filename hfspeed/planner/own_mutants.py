"""Deliberately wrong plans of ours, one op changed in each: the proof must catch all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hfspeed.emit import emitted
from hfspeed.errors import PlanError
from hfspeed.pattern.expert_form import expert_form
from hfspeed.pattern.probe import CannotProbe
from hfspeed.plan import (
    Attention,
    Column,
    Embed,
    Experts,
    Gated,
    Heads,
    Norm,
    Op,
    Plan,
    Rotary,
    Row,
    Stacked,
    Whole,
)
from hfspeed.plan.paths import shape
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.prove import prove

SEEN = 1e-7
"""An epsilon below this may be twice as large, and nothing that is computed differs by more than is allowed."""
_MEASURED = ("act", "gated", "interleaved", "swapped", "limit", "alpha", "beta", "weighs_input")


@dataclass(frozen=True)
class OwnMutant:
    """A plan with one op changed; ``what`` says which and how."""

    what: str
    plan: Plan


def own_mutants(plan: Plan) -> Iterator[OwnMutant]:
    """Every op of every kind of block, changed in turn; of equal ones the last, behind which all else stands."""
    last: dict[tuple[str, str], int] = {}
    for number, op in enumerate(plan.ops):
        last[shape(op.path), repr(replace(op, path=""))] = number
    for number in last.values():
        for word, wrong in _wrong(plan.ops[number], split=plan.tensor):
            ops = (*plan.ops[:number], wrong, *plan.ops[number + 1 :])
            yield OwnMutant(f"{plan.ops[number].path}: {word}", replace(plan, ops=ops))


def survivors(plan: Plan, model: Any) -> tuple[int, list[OwnMutant]]:
    """How many wrong plans were run, and those that the proof did not catch.

    Args:
        plan: the small model's plan.
        model: the small model, as it was before it ran.
    """
    count, alive = 0, []
    classes = emitted(plan)
    for mutant in own_mutants(plan):
        count += 1
        try:
            prove(mutant.plan, model, classes, ranks=(1, 2), stages=(1,))
        except (Mismatch, PlanError):
            continue
        if not _measured_otherwise(mutant.plan, model):
            alive.append(mutant)
    return count, alive


def _measured_otherwise(plan: Plan, model: Any) -> bool:
    """Whether experts, run at sizes of tokens that no prompt has, do something else than the plan says.

    That is how their limits are found, and so how a wrong one is caught where no token of a proof reaches it.
    """
    for op in plan.ops:
        if not isinstance(op, Experts) or op.apart:
            continue
        try:
            found = expert_form(model.get_submodule(op.path), op.path, op.takes, op.inputs, op.top_k)
        except CannotProbe:
            continue
        if any(getattr(found, fact) != getattr(op, fact) for fact in _MEASURED):
            return True
    return False


def _wrong(op: Op, *, split: bool) -> Iterator[tuple[str, Op]]:
    match op:
        case Column() | Row() if split:
            yield from _shares(op)
        case Heads() | Stacked() if split:
            yield "split" if not op.split else "not split", replace(op, split=not op.split)
        case Gated():
            yield "another activation", replace(op, act="gelu" if op.act != "gelu" else "silu")
            yield "a nearly equal activation", replace(op, act="gelu" if op.act == "gelu_tanh" else "gelu_tanh")
        case Norm():
            if op.eps >= SEEN:
                yield "eps twice as large", replace(op, eps=2 * op.eps)
            if op.weight != "none":
                yield "another kind of weight", replace(op, weight="plain" if op.weight == "one_plus" else "one_plus")
            if op.units and split:
                yield "norm of a share", replace(op, units=0)
        case Attention():
            yield from _attention(op, split=split)
        case Rotary():
            yield "another layout of pairs", replace(op, interleaved=not op.interleaved)
        case Experts():
            yield from _experts(op)
        case Embed():
            yield "another scale", replace(op, scale=op.scale * 1.001)


def _shares(op: Column | Row) -> Iterator[tuple[str, Op]]:
    facts = (op.path, op.inputs, op.outputs, op.bias)
    if isinstance(op, Column):
        yield "whole instead of column", Whole(*facts)
        yield "row instead of column", Row(*facts)
    else:
        yield "column instead of row", Column(*facts, units=op.outputs)
        yield "whole instead of row", Whole(*facts)


def _attention(op: Attention, *, split: bool) -> Iterator[tuple[str, Op]]:
    yield "another scale", replace(op, scale=op.scale * 1.0001)
    yield "a window too many", replace(op, window=3 if op.window is None else None)
    yield "a window one longer", replace(op, window=(op.window or 8) + 1)
    yield "a chunk one longer", replace(op, chunk=(op.chunk or 7) + 1)
    yield "another softcap", replace(op, softcap=None if op.softcap else 30.0)
    if op.sinks is not None:
        yield "without sinks", replace(op, sinks=None)
    if op.alibi is not None:
        yield "without biases", replace(op, alibi=None)
    if op.split and split:
        yield "not split", replace(op, split=False)


def _experts(op: Experts) -> Iterator[tuple[str, Op]]:
    yield "another activation", replace(op, act="gelu" if op.act != "gelu" else "silu")
    if op.gated and len(op.up) == 1:
        yield (
            "halves in turn" if not op.interleaved else "halves side by side",
            replace(op, interleaved=not op.interleaved),
        )
        yield "gate and value exchanged", replace(op, swapped=not op.swapped)
    yield "another limit", replace(op, limit=0.01 if op.limit is None else None)
    yield "weighs the other end", replace(op, weighs_input=not op.weighs_input)
