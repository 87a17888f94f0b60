"""A study becomes a plan that is not yet proven: fusions, splits, stages, destinations."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final

from hfspeed.axes import pipeline
from hfspeed.errors import RefusedError
from hfspeed.fusions.bare import BareMatrix
from hfspeed.graph.linear import changed, shape_of
from hfspeed.graph.nodes import linears
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful
from hfspeed.pattern.bare import is_product
from hfspeed.pattern.counted import hand_down
from hfspeed.pattern.edit import Change, outside
from hfspeed.pattern.expert_list import NOTE, listed
from hfspeed.pattern.fusion import apply
from hfspeed.pattern.one_way import one_way
from hfspeed.pattern.probe import CannotProbe
from hfspeed.pattern.recurrence import recurrences
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.site import Site
from hfspeed.plan import Plan
from hfspeed.plan.paths import below
from hfspeed.planner import rewrites
from hfspeed.planner.assemble import assembled
from hfspeed.planner.ending import NOTE as ENDING
from hfspeed.planner.ends import projection_of, table_of
from hfspeed.planner.forwards import by_hand
from hfspeed.planner.leaves import Splits, as_written
from hfspeed.planner.mixing import history
from hfspeed.planner.readers import read_by_others
from hfspeed.planner.splits import split
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.switches import active
from hfspeed.planner.verdicts import Verdicts, key
from hfspeed.planner.work import Draft
from hfspeed.planner.wrapper import name_of, whereabouts, wrapper
from hfspeed.refusal import Reason, Refusal, Refused

TIED: Final = "the token table, which only the first stage has, makes logits as well; give the head a linear of its own"


def draft(study: Study, verdicts: Verdicts) -> tuple[Plan, Draft]:
    """The plan of one study; the same code decides for the small model and for the large one."""
    around = wrapper(
        study.model,
        study.recording,
        interface=study.interface,
        counted=bool(study.positions) or verdicts.rows,
        first_position=study.first_position,
        limit=study.limit,
        room=study.room,
    )
    work = Draft(study, verdicts, around)
    work.refusals += study.refusals
    _replacements(work)
    _recurrences(work)
    whole = _closed(work)
    splits = split(work)
    _fusions(work, splits)
    rewrites.shapes(work)
    rewrites.masks(work)
    rewrites.positions(work)
    _stages(work)
    _ending(work)
    return assembled(work, splits, whole), work


def _replacements(work: Draft) -> None:
    table = table_of(work.study.model)
    for call in work.calls():
        own = call.module is table or changed(call.module)
        for replacement in () if own else active().replacements:
            if not replacement.sees(call):
                continue
            try:
                twin, later = work.study.twin.get_submodule(call.path), work.study.recording.again.get(call.path, ())
                op = replacement.plan(call, twin, later)
            except Refused as no:
                work.refusals.append(no.refusal)
            else:
                work.ops.append(op)


def _closed(work: Draft) -> frozenset[str]:
    """Modules that are not looked into: what no replacement took stays as written; returns the paths of all."""
    taken = {op.path for op in work.ops}
    # what runs on whole sequences keeps its weights one by one, like everything that is looked into
    closed = [call for call in work.calls() if call.closed and not work.apart(call)]
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
    site.notes.append(NOTE.format(name=found.name))
    site.promised.append(found.name)
    work.ops.append(found.op)
    return found.op.path


def _recurrences(work: Draft) -> None:
    """Functions with a state get one per sequence; a module that calls one changes in nothing else."""
    for call in work.calls():
        if work.apart(call):
            op, cost = history(call, work.study.written.get(call.path))
            work.ops.append(op)
            work.refusals.append(cost)
            continue
        if work.inside_written(call.path) or not any(is_stateful(node) for node in call.graph.nodes):
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


def _fusions(work: Draft, splits: Splits) -> None:
    fusions, split = active().fusions, below(splits.columns)
    read = below(read_by_others(work.calls()))
    outer = {work.wrapper.head, name_of(work.study.model, table_of(work.study.model))}
    taken_over = {op.path for op in work.ops} | splits.gathered.keys() | outer
    for call in work.calls():
        if work.inside_written(call.path) or not _alike(call, work.study.recording.again.get(call.path, ())):
            continue
        if change := work.study.by_hand.get(call.path):
            by_hand(
                work.sites.setdefault(call.path, Site(call)), one_way(change) if work.verdicts.one_way else change
            )
        inside = any(call.path.startswith(f"{path}.") for path in work.mixed)  # whose tensors are cut already
        bare = call.path not in taken_over and shape_of(call.module) is None and not inside
        if not linears(call.graph) and not (bare and any(map(is_product, call.graph.nodes))):
            continue
        verdict = work.verdicts.of(call)
        told = verdict.refusal if verdict.without or not verdict.fused else None
        work.refusals += [told.at(call.path)] if told else []
        if not verdict.fused:
            continue
        names = frozenset(split.get(call.path, ()))
        site = work.sites.get(call.path) or Site(call)
        before = len(site.ops)
        site.split, site.regroup, site.as_written = names, verdict.regroup, verdict.as_written
        site.read = frozenset(read.get(call.path, ()))
        site.segments = {name: cut for name in names if (cut := splits.segments.get(site.below(name)))}
        for fusion in (one for one in fusions if one.name not in verdict.without):
            if (key(call), fusion.name) not in work.verdicts.barred and (bare or not isinstance(fusion, BareMatrix)):
                apply(fusion, site)
        work.refusals += site.refusals
        if site.ops[before:]:
            work.sites[call.path] = site
            work.ops += site.ops[before:]


def _alike(call: Call, later: Sequence[Call]) -> bool:
    """Whether later calls of a module in the same step take the same way through its forward."""
    first = [(node.op, str(node.target)) for node in call.graph.nodes]
    return all([(node.op, str(node.target)) for node in one.graph.nodes] == first for one in later)


def _stages(work: Draft) -> None:
    recording = work.study.recording
    if not work.verdicts.stages:
        return
    if projection_of(work.study.model) is table_of(work.study.model):
        work.refusals.append(Refusal("stages", Reason.STAGE_STATE, TIED, work.wrapper.head))
        return
    try:
        decoder, layers = pipeline.layer_list(recording)
        site = work.sites.setdefault(decoder, Site(recording.calls[decoder]))
        embed = table_of(work.study.model)
        table = next(n for n, m in work.study.model.named_modules() if m is embed)
        stages, changes = pipeline.cut(recording, site, layers, table, work.wrapper.base)
        base = work.wrapper.base
        handed: dict[str, list[Change]] = {decoder: changes[:1]}
        if decoder != base and work.verdicts.handed:
            hand_down(recording, base, decoder, handed, "intermediate")
    except Refused as no:
        work.refusals.append(no.refusal)
        return
    for path, more in handed.items():
        if path != decoder:
            outer = work.sites.setdefault(path, Site(recording.calls[path]))
            outer.changes += more
            outer.notes.append(pipeline.note())
    site.changes += changes
    site.notes.append(pipeline.note())
    site.promised += ["hands_on"] if decoder == work.wrapper.base else []
    work.stages = stages


def _ending(work: Draft) -> None:
    """A base model that makes logits as well ends where hidden states stand."""
    path, found = whereabouts(work.study.model, work.study.recording)
    if found is None:
        return
    site = work.sites.setdefault(path, Site(work.study.recording.calls[path]))
    inside = {id(node) for node in ast.walk(found.expression)}
    if any(id(change.node) in inside for change in site.changes):
        raise RefusedError(type(work.study.model).__name__, (found.tangled(),))
    site.changes = [*outside(site.changes, found.changes), *found.changes]
    site.notes.append(ENDING)
