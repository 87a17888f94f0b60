"""What was decided module by module becomes one plan: the same for equal layers, and an op for whatever is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from hfspeed.plan import Attention, Heads, History, Local, Op, Plan, Recurrence, Stacked
from hfspeed.plan.linears import taken
from hfspeed.planner.alike import Alike
from hfspeed.planner.destinations import destinations
from hfspeed.planner.forwards import forwards
from hfspeed.planner.leaves import Splits, ends, kept
from hfspeed.planner.readers import hooked, measured, owners_read, stay
from hfspeed.planner.work import Draft
from hfspeed.planner.wrapper import hidden_of


def assembled(work: Draft, splits: Splits, whole: frozenset[str]) -> Plan:
    """The plan of a draft.

    Args:
        work: what was decided, for one of all equal layers.
        splits: what ranks share.
        whole: modules that are not looked into.
    """
    study, alike = work.study, Alike(work.study)
    calls = study.recording.calls.values()  # the wrapper reads as well
    sized, read = measured(calls), alike.all(owners_read(calls))
    work.ops = [*alike.ops(work.ops), *ends(study.model, study.twin, work.wrapper.head, read)]
    claimed = frozenset(name for op in work.ops for name in _names(op))
    work.ops += kept(study.model, claimed, alike.splits(splits), alike.all(whole), read)
    work.refusals += [*stay(work.ops, sized, study.model), *hooked(work.ops, study.model)]
    return _plan(work, alike)


def _names(op: Op) -> Iterator[str]:
    """The paths whose weights an op takes."""
    yield op.path if not isinstance(op, (Attention, History, Local, Recurrence)) else f"{op.path}."
    outer = op.path.rpartition(".")[0]
    if isinstance(op, (Heads, Stacked)):
        yield from (f"{outer}.{part}" if outer else part for part in op.parts)
    if isinstance(op, Attention) and op.sinks:
        yield f"{op.path}.{op.sinks}"
    yield from (f"{outer}.{name}" for name in taken(op))


def _plan(work: Draft, alike: Alike) -> Plan:
    model: Any = work.study.model
    order = {name: number for number, (name, _) in enumerate(model.named_modules())}
    ops = tuple(sorted(work.ops, key=lambda op: order.get(op.path, order.get(op.path.rpartition(".")[0], 0))))
    weights, ties = destinations(model, ops)
    base: nn.Module = model.get_submodule(work.wrapper.base)
    output = hidden_of(model, work.study.recording)
    return Plan(
        architecture=type(model).__name__,
        module=type(model).__module__,
        size=int(output.shape[-1]),
        ops=ops,
        weights=weights,
        ties=ties,
        forwards=tuple(alike.forward(one) for one in forwards(work.sites.values())),
        wrapper=work.wrapper,
        stages=work.stages,
        tensor=work.tensor,
        refusals=tuple(dict.fromkeys(alike.refusals(work.refusals))),
        ignorable=tuple(getattr(base, "_keys_to_ignore_on_load_unexpected", None) or ()),
    )
