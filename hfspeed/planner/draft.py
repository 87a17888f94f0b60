"""A study becomes a plan that is not yet proven: fusions, splits, stages, destinations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from hfspeed.axes import pipeline, tensor
from hfspeed.axes.tensor import Block
from hfspeed.graph.nodes import linears
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful
from hfspeed.pattern.expert_list import NOTE as NOTES
from hfspeed.pattern.expert_list import listed
from hfspeed.pattern.fusion import apply
from hfspeed.pattern.masks import NOTE
from hfspeed.pattern.probe import CannotProbe
from hfspeed.pattern.recurrence import recurrences
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.site import Site
from hfspeed.plan import Attention, Heads, History, Local, Norm, Op, Plan, Recurrence, Stacked, Stages, Wrapper
from hfspeed.planner.destinations import destinations
from hfspeed.planner.forwards import by_hand, forwards
from hfspeed.planner.leaves import Splits, as_written, ends, kept
from hfspeed.planner.mixing import history
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.switches import active
from hfspeed.planner.verdicts import Verdicts, key
from hfspeed.planner.wrapper import wrapper
from hfspeed.refusal import Reason, Refusal, Refused


@dataclass
class Draft:
    """A plan in the making, and what it was made from.

    Attributes:
        study: the model looked at.
        blocks: how each module could be split, before verdicts.
        views: the calls that blocks were found in, some with a look into children.
        sites: the modules whose forward is rewritten.
        refusals: what was not done.
    """

    study: Study
    verdicts: Verdicts
    wrapper: Wrapper
    blocks: dict[str, Block] = field(default_factory=dict)
    views: dict[str, Call] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    stages: Stages | None = None
    tensor: bool = True
    refusals: list[Refusal] = field(default_factory=list)

    def calls(self) -> Iterator[Call]:
        """The calls inside the base model."""
        base = self.wrapper.base
        for path, call in self.study.recording.calls.items():
            if path == base or path.startswith(f"{base}."):
                yield call


def draft(study: Study, verdicts: Verdicts) -> tuple[Plan, Draft]:
    """The plan of one study; the same code decides for the small model and for the large one."""
    work = Draft(study, verdicts, wrapper(study.model, study.recording, interface=study.interface))
    work.refusals += study.refusals
    _replacements(work)
    _recurrences(work)
    whole = _closed(work)
    splits = _splits(work)
    _fusions(work, splits)
    _masks(work)
    _stages(work)
    work.ops += ends(study.model, study.twin, work.wrapper.head)
    claimed = frozenset(name for op in work.ops for name in _names(op))
    work.ops += kept(study.model, claimed, splits, whole, _read(work))
    return _plan(work), work


def _replacements(work: Draft) -> None:
    replacements = active().replacements
    for call in work.calls():
        for replacement in replacements:
            if call.module is work.study.model.get_input_embeddings() or not replacement.sees(call):
                continue
            try:
                op = replacement.plan(call, work.study.twin.get_submodule(call.path))
                if isinstance(op, Attention) and call.path in work.study.recording.again:
                    found = "the module is called more than once a step; each call needs keys and values of its own"
                    replacement.refuse(call, Reason.CALLED_TWICE_INTERFACE, found)
            except Refused as no:
                work.refusals.append(no.refusal)
            else:
                work.ops.append(op)


def _closed(work: Draft) -> frozenset[str]:
    """Modules that are not looked into: what no replacement took stays as written; returns the paths of all."""
    taken = {op.path for op in work.ops}
    closed = [call for call in work.calls() if call.closed]
    paths = {call.path for call in closed}
    for call in closed:
        if call.path in taken:
            continue
        if (path := _list_of_experts(work, call)) is not None:
            paths = paths - {call.path} | {path}
        else:
            op, refusal = as_written(call, TOKENS)
            work.ops.append(op)
            work.refusals.append(refusal)
    return frozenset(paths)


def _list_of_experts(work: Draft, call: Call) -> str | None:
    """Let a block call its list of experts at once, if it may; the path of the list."""
    verdict = work.verdicts.of(call)
    work.refusals += [verdict.refusal.at(call.path)] if verdict.refusal else []
    switched_on = any(one.name == "experts" for one in active().replacements)
    try:
        found = listed(call) if verdict.fused and switched_on and call.path not in work.study.recording.again else None
    except CannotProbe as why:
        told = Refusal("experts", Reason.EXPERTS_AS_WRITTEN, f"the list stays as written: {why}", call.path)
        work.refusals.append(told)
        return None
    if found is None:
        return None
    site = work.sites.setdefault(call.path, Site(call))
    site.ops.append(found.op)
    site.changes += found.changes
    site.notes.append(NOTES.format(name=found.name))
    site.promised.append(found.name)
    work.ops.append(found.op)
    return found.op.path


def _recurrences(work: Draft) -> None:
    """Functions with a state get one per sequence; a module that calls one changes in nothing else."""
    for call in work.calls():
        if key(call) in work.verdicts.histories:
            op, cost = history(call)
            work.ops.append(op)
            work.refusals.append(cost)
            continue
        if not any(is_stateful(node) for node in call.graph.nodes):
            continue
        site = work.sites.setdefault(call.path, Site(call))
        try:
            found = recurrences(site)
        except Refused as no:
            work.refusals.append(no.refusal)
            continue
        if call.path in work.study.recording.again:
            told = "the module is called more than once a step; each call needs a state of its own"
            work.refusals.append(Refusal("recurrence", Reason.CALLED_TWICE, told, call.path, place_of(call)))
        work.ops += found


def _splits(work: Draft) -> Splits:
    """Gather what the verdicts let split; without all of the attention, nothing is."""
    columns: dict[str, int] = {}
    rows: set[str] = set()
    gathered: dict[str, int] = {}
    attending: set[str] = set()
    local: list[Op] = []
    for call in work.calls():
        view = tensor.across(call, work.study.recording)
        block = tensor.block(view)
        if block is None or key(call) in work.verdicts.histories:
            continue
        work.blocks[call.path], work.views[call.path] = block, view
        verdict = work.verdicts.of(view)
        if not verdict.split:
            work.refusals += [verdict.refusal.at(call.path)] if verdict.refusal else []
            continue
        columns |= block.columns
        rows |= set(block.rows)
        gathered |= block.gathered
        attending |= block.attends
        local += [_local(call, name) for name in verdict.local]
    attention = {op.path for op in work.ops if isinstance(op, Attention)}
    work.tensor = work.verdicts.tensor and attention <= attending
    if not work.tensor:
        columns, rows, gathered, local = {}, set(), {}, []
    work.ops = [_shared(op, work.tensor, gathered) for op in work.ops] + local
    return Splits(columns, frozenset(rows), gathered)


def _local(call: Call, name: str) -> Local:
    """The attribute ``name`` of the called module, or of a child in it."""
    child, _, attribute = name.rpartition(".")
    module = call.module.get_submodule(child)
    path = ".".join(part for part in (call.path, child) if part)
    return Local(path, attribute, int(getattr(module, attribute)))


def _shared(op: Op, split: bool, gathered: dict[str, int]) -> Op:
    if isinstance(op, Attention):
        return replace(op, split=split)
    return replace(op, units=gathered.get(op.path, 0)) if isinstance(op, Norm) else op


def _fusions(work: Draft, splits: Splits) -> None:
    split, fusions = {*splits.columns}, active().fusions
    for call in work.calls():
        if call.path in work.study.recording.again:
            continue
        if change := work.study.by_hand.get(call.path):
            by_hand(work.sites.setdefault(call.path, Site(call)), change)
        if not linears(call.graph):
            continue
        verdict = work.verdicts.of(call)
        if not verdict.fused:
            work.refusals += [verdict.refusal.at(call.path)] if verdict.refusal else []
            continue
        start = len(call.path) + 1
        names = frozenset(path[start:] for path in split if path.startswith(f"{call.path}."))
        site = work.sites.get(call.path) or Site(call)
        before = len(site.ops)
        site.split, site.regroup = names, verdict.regroup
        for fusion in fusions:
            apply(fusion, site)
        work.refusals += site.refusals
        if site.ops[before:]:
            work.sites[call.path] = site
            work.ops += site.ops[before:]


def _masks(work: Draft) -> None:
    """Where attention is no longer computed by hand, masks are only in the way."""
    for path, changes in work.study.masks.items() if work.verdicts.masks else ():
        site = work.sites.setdefault(path, Site(work.study.recording.calls[path]))
        site.changes += changes
        site.notes.append(NOTE)


def _stages(work: Draft) -> None:
    recording = work.study.recording
    if not work.verdicts.stages:
        return
    try:
        decoder, layers = pipeline.layer_list(recording)
        site = work.sites.setdefault(decoder, Site(recording.calls[decoder]))
        embed = work.study.model.get_input_embeddings()
        table = next(n for n, m in work.study.model.named_modules() if m is embed)
        stages, changes = pipeline.cut(recording, site, layers, table)
    except Refused as no:
        work.refusals.append(no.refusal)
        return
    site.changes += changes
    site.notes.append(pipeline.note())
    site.promised.append("hands_on")
    work.stages = stages


def _read(work: Draft) -> frozenset[str]:
    """Modules whose parameters are read by the code of another."""
    found = set()
    for call in work.calls():
        for node in call.graph.nodes:
            owner = str(node.target).rpartition(".")[0] if node.op == "get_attr" else call.path
            if owner != call.path:
                found.add(owner)
    return frozenset(found)


def _names(op: Op) -> Iterator[str]:
    """The paths whose weights an op takes."""
    yield op.path if not isinstance(op, (Attention, History, Local, Recurrence)) else f"{op.path}."
    outer = op.path.rpartition(".")[0]
    if isinstance(op, (Heads, Stacked)):
        yield from (f"{outer}.{part}" if outer else part for part in op.parts)
    if isinstance(op, Attention) and op.sinks:
        yield f"{op.path}.{op.sinks}"


def _plan(work: Draft) -> Plan:
    model: Any = work.study.model
    order = {name: number for number, (name, _) in enumerate(model.named_modules())}
    ops = tuple(sorted(work.ops, key=lambda op: order.get(op.path, order.get(op.path.rpartition(".")[0], 0))))
    weights, ties = destinations(model, ops)
    base: nn.Module = getattr(model, work.wrapper.base)
    output = work.study.recording.calls[work.wrapper.base].output
    return Plan(
        architecture=type(model).__name__,
        module=type(model).__module__,
        size=int(output[0].shape[-1]),
        ops=ops,
        weights=weights,
        ties=ties,
        forwards=forwards(work.sites.values()),
        wrapper=work.wrapper,
        stages=work.stages,
        tensor=work.tensor,
        refusals=tuple(dict.fromkeys(work.refusals)),
        ignorable=tuple(getattr(base, "_keys_to_ignore_on_load_unexpected", None) or ()),
    )
