"""Which numbers of ranks, stages and ranks of experts are possible at all, and what rules out the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from hfspeed.plan import laws, paths, shares, text
from hfspeed.plan.ops import Column, Experts, Heads, Op, Row, Stacked
from hfspeed.plan.plan import Plan

LIMIT = 64
"""Ranks looked at; more than that are not in one machine, nor in one rack."""


@dataclass(frozen=True)
class Sizes:
    """The possible numbers along one axis.

    Attributes:
        flag: the axis, as the command line has it.
        able: those that are possible, among ``1`` to ``limit``.
        limit: the largest that was looked at.
        why: what rules out the others, one line each; the refusals of the plan where nothing but 1 is possible.
    """

    flag: str
    able: tuple[int, ...]
    limit: int
    why: tuple[str, ...]


def sizes(plan: Plan, group: tuple[int, int] = (1, 1), quantised: Iterable[str] = ()) -> tuple[Sizes, ...]:
    """The possible sizes of every axis.

    Args:
        plan: the plan.
        group: how many inputs and outputs of a quantised matrix share a scale.
        quantised: paths of the ops that have quantised matrices.
    """
    return _tensor(plan, group, frozenset(quantised)), _stages(plan), _experts(plan)


def ruled_out(plan: Plan, ranks: int) -> Iterator[tuple[str, str]]:
    """What keeps a plan from so many ranks: the first path, and all like it with the reason, in words."""
    few, paths_of = _distinct(plan.ops)
    for path, why in _ruled(replace(plan, ops=few), ranks, (1, 1), frozenset()):
        yield path, f"{', '.join(paths.merge(paths_of.get(path, [path])))}: {why}"


def _tensor(plan: Plan, group: tuple[int, int], quantised: frozenset[str]) -> Sizes:
    if not plan.tensor:
        return Sizes("--tp", (1,), LIMIT, _refusals(plan, "tensor") or ("the plan does not say why",))
    few, paths_of = _distinct(plan.ops)
    small = replace(plan, ops=few)
    ruled: dict[str, set[int]] = {}
    for ranks in range(2, LIMIT + 1):
        for path, why in _ruled(small, ranks, group, quantised):
            ruled.setdefault(f"{', '.join(paths.merge(paths_of.get(path, [path])))}: {why}", set()).add(ranks)
    out: set[int] = set().union(*ruled.values()) if ruled else set()
    able = tuple(number for number in range(1, LIMIT + 1) if number not in out)
    whole = not any(isinstance(op, Column | Row | Experts) or getattr(op, "split", False) for op in few)
    told = ("no layer is split, so every rank holds all of them",) if whole else tuple(_needed(ruled))
    return Sizes("--tp", able, LIMIT, told)


def _ruled(plan: Plan, ranks: int, group: tuple[int, int], quantised: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Paths and what about them ``ranks`` does not divide."""
    for op in plan.ops:
        if not shares.divides(op, ranks):
            yield op.path, f"{laws.counts(op)}, so {_listed(shares.workable(op, LIMIT))} can"
        elif op.path in quantised and (why := _groups(op, ranks, group)):
            yield op.path, why
    for told in laws.key_widths(plan, ranks):
        path, _, value = told.rpartition(" on ")[0].partition(" = ")
        above, _, name = path.rpartition(".")
        yield above, f"{name} = {value}"


def _groups(op: Op, ranks: int, group: tuple[int, int]) -> str:
    """Why a share of a quantised matrix would not hold whole groups."""
    inputs, outputs = group
    match op:
        case Row() if (op.inputs // ranks) % inputs:
            return f"{op.inputs} inputs in groups of {inputs} that share a scale"
        case Experts() if (op.inner // ranks) % max(group):
            return f"experts {op.inner} wide in groups of {max(group)} that share a scale"
        case Column() if (op.outputs // ranks) % outputs:
            return f"{op.outputs} outputs in groups of {outputs} that share a scale"
        case Stacked() | Heads() if op.split and any(width % outputs for width in shares.widths(op, ranks)):
            return f"parts of {_listed(shares.parts(op))} outputs in groups of {outputs} that share a scale"
    return ""


def _stages(plan: Plan) -> Sizes:
    stages = plan.stages
    if stages is None or stages.count < 2:
        has = f"{stages.layers} has {stages.count} layers" if stages else "the plan does not say why"
        return Sizes("--pp", (1,), LIMIT, _refusals(plan, "stages", "pipeline") or (has,))
    why = f"{stages.layers} has {stages.count} layers, and a stage needs one"
    return Sizes("--pp", tuple(range(1, stages.count + 1)), stages.count, (why,))


def _experts(plan: Plan) -> Sizes:
    counts = sorted({op.count for op in plan.ops if isinstance(op, Experts)})
    if not counts:
        return Sizes("--ep", (1,), LIMIT, _refusals(plan, "experts") or ("no layer has experts that can be spread",))
    told = f"a layer has {_listed(tuple(counts))} experts, and a rank needs one"
    return Sizes("--ep", tuple(range(1, counts[0] + 1)), counts[0], (told,))


def _distinct(ops: Iterable[Op]) -> tuple[tuple[Op, ...], dict[str, list[str]]]:
    """One op of each kind of block, and the paths of all that are like it."""
    first: dict[tuple[str, str], Op] = {}
    alike: dict[str, list[str]] = {}
    for op in ops:
        key = (paths.shape(op.path), repr(replace(op, path="")))
        alike.setdefault(first.setdefault(key, op).path, []).append(op.path)
    return tuple(first.values()), alike


def _needed(ruled: dict[str, set[int]]) -> Iterator[str]:
    """The fewest causes, each ruling out something that those before do not."""
    seen: set[int] = set()
    for why, out in sorted(ruled.items(), key=lambda entry: -len(entry[1])):
        if not out <= seen:
            seen |= out
            yield why


def _refusals(plan: Plan, *wanted: str) -> tuple[str, ...]:
    return tuple(text.refused(one for one in plan.refusals if one.wanted in wanted))


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in dict.fromkeys(numbers))
