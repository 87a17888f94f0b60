"""A subject becomes a proven plan: decide for the small model, prove it, decide the same for the large one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from hfspeed.emit import emitted
from hfspeed.errors import PlanError, RefusedError
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan, Proof, Recurrence, laws
from hfspeed.planner.asked import from_cache
from hfspeed.planner.attempts import tried
from hfspeed.planner.attends import mixes
from hfspeed.planner.baked import baked
from hfspeed.planner.beginning import beginning, servable
from hfspeed.planner.beside import beside
from hfspeed.planner.blame import blamed
from hfspeed.planner.causal import begun
from hfspeed.planner.crowds import crowds
from hfspeed.planner.declared import disagreements
from hfspeed.planner.divided import divided
from hfspeed.planner.draft import draft
from hfspeed.planner.endings import long_answers, other_forwards
from hfspeed.planner.failed import failed
from hfspeed.planner.failed import told as told_of
from hfspeed.planner.full_size import share_stops
from hfspeed.planner.generates import own_generation, prepares
from hfspeed.planner.hinted import false_hints, false_recurrences
from hfspeed.planner.judge import judge
from hfspeed.planner.layers import fewest
from hfspeed.planner.load import Subject
from hfspeed.planner.long_run import long_run
from hfspeed.planner.loud import loud
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.mixers import mixers as stateful_mixers
from hfspeed.planner.mixers import refused as stays_whole
from hfspeed.planner.mixing import mixers
from hfspeed.planner.own_attention import differs
from hfspeed.planner.process import asked_of_process
from hfspeed.planner.prove import prove
from hfspeed.planner.rounding import rounds
from hfspeed.planner.rows import long_rows
from hfspeed.planner.spans import lost_mask
from hfspeed.planner.study import Study
from hfspeed.planner.tables import rowwise
from hfspeed.planner.together import reductions
from hfspeed.planner.unproven import unproven
from hfspeed.planner.unseen import unseen
from hfspeed.planner.verdicts import Key, Verdict, Verdicts, key
from hfspeed.planner.ways import other_ways
from hfspeed.planner.withdraw import withdrawn
from hfspeed.planner.written import Writing
from hfspeed.refusal import Reason, Refusal


def decide(subject: Subject, built: Any = None) -> Plan:
    """The proven plan of a model; ``built`` is it on meta, as `hfspeed.planner.build` makes it, where somebody has.

    Raises:
        RefusedError: it cannot be served correctly; the refusals say why.
        SubjectError: it cannot be built.
    """
    with blamed(subject):
        plan, told = tried(subject, partial(_decide, subject, built))
        return plan.with_refusals(*told)


def _decide(subject: Subject, built: Any, *, as_written: bool = False, writing: Writing | None = None) -> Plan:
    full, first, small = beginning(subject, built, as_written=as_written, writing=writing)
    if lies := false_hints(full, first):
        raise RefusedError(subject.name, lies)
    verdicts = judge(small, _barred(full, first))
    if lies := false_recurrences(small):
        raise RefusedError(subject.name, lies)
    rows = long_rows(small, full.limit)
    if others := other_ways(full.recording, small.recording) or rows.ways:
        raise RefusedError(subject.name, others)
    proven, proofs = _prove(subject, small, verdicts)
    apart = prepares(small) or (differs(small) if first.wrapper.interface else None)
    if other := apart or unseen(small, proven) or lost_mask(small, proven):
        raise RefusedError(subject.name, (other,))
    if reduced := reductions(small, proven) or crowds(small, proven) or loud(small, proven):
        raise RefusedError(subject.name, reduced)
    if reduced := rows.rest(proven) or long_answers(small, proven) or asked_of_process(small):
        raise RefusedError(subject.name, reduced)
    if far := long_run(small, proven, full.limit):
        raise RefusedError(subject.name, (far,))
    plan = _covered(full, verdicts, proven)
    lost = unproven(full, plan, proofs) or other_forwards(full, plan, proven) or beside(plan, full.model)
    if lost := lost or baked(small, proven):
        raise RefusedError(subject.name, lost)
    cached = from_cache(small)
    told = (*verdicts_told(proven), *disagreements(full.model, plan), *rounds(small), *own_generation(small.model))
    told += (cached,) if cached else ()
    plan = plan.with_proofs(*proofs).with_refusals(*(r for r in told if r not in plan.refusals))
    laws.verify(plan, proven=True)
    return plan


def small_study(subject: Subject) -> Study:
    """The small real model of a subject, as proofs use it."""
    with blamed(subject):
        return tried(subject, partial(beginning, subject))[0][2]


def first_plan(subject: Subject) -> Plan:
    """What dataflow alone says of the large model, proven by nothing yet: its sizes, and what they divide by.

    Raises:
        RefusedError: it cannot be served correctly whatever is proven.
    """
    with blamed(subject):
        return tried(subject, partial(_first, subject))[0]


def small_plan(subject: Subject, *, ranks: int = 2, stages: int = 2) -> tuple[Plan, Study]:
    """The plan of the small model, and the model: what `verify` runs on so many ranks and stages, if the large one can.

    Raises:
        RefusedError: as `decide`.
    """
    with blamed(subject):
        return tried(subject, partial(_proven, subject, ranks, stages))[0]


def _first(subject: Subject, *, as_written: bool = False, writing: Writing | None = None) -> Plan:
    _, first = begun(subject, as_written=as_written, written=writing.modules if writing else None)
    servable(subject, first)
    return first


def _proven(subject: Subject, ranks: int, stages: int, **how: Any) -> tuple[Plan, Study]:
    full, first, small = beginning(subject, None, ranks, stages, **how)
    plan, _ = _prove(subject, small, judge(small, _barred(full, first), fewest(first, ranks)))
    return plan, small


def _barred(full: Study, first: Plan) -> frozenset[tuple[Key, str]]:
    """Fusions that values of the large model rule out, by kind of module."""
    told = [no for no in first.refusals if no.wanted == "rotary" and no.reason is Reason.VALUE_VARIES]
    return frozenset((key(full.recording.calls[full.recording.same(no.module)]), no.wanted) for no in told)


def _prove(subject: Subject, small: Study, verdicts: Verdicts) -> tuple[Plan, list[Proof]]:
    """Prove the small plan on one rank, else refuse; then on ranks and stages, else do without them."""
    plan, _ = draft(small, verdicts)
    try:
        proofs = prove(plan, small.fresh, emitted(plan), ranks=(1,), stages=(1,))
    except (Mismatch, PlanError) as error:
        if withdrawn(small, verdicts, plan, error):
            return _prove(subject, small, verdicts)
        if small.by_hand and verdicts.masks:
            verdicts.masks = False  # something insists on a mask, although attention does not read it
            return _prove(subject, small, verdicts)
        if not verdicts.rows and rowwise(small):
            verdicts.rows = True
            try:
                return _prove(subject, small, verdicts)
            except RefusedError:
                verdicts.rows = False
        if small.by_hand and not verdicts.one_way:
            verdicts.one_way = True  # a row of one token, or of many, may be attended to in another place
            return _prove(subject, small, verdicts)
        if not verdicts.histories and (found := _remembering(subject, small, verdicts, plan)):
            return found
        mixes(subject.name, plan, small)
        raise RefusedError(subject.name, failed(subject, small, plan, error)) from error
    mixes(subject.name, plan, small)
    told: list[Refusal] = []
    for axis, ranks, stages in (("tensor", (verdicts.ranks,), (1,)), ("stages", (1,), (2,))):
        able = plan.tensor if axis == "tensor" else plan.stages is not None and plan.stages.count > 1
        if not able:
            continue
        try:
            plan, more = divided(small, verdicts, plan, ranks, stages)
            proofs += more
        except (Mismatch, PlanError) as error:
            told.append(told_of(error, axis, subject))
            setattr(verdicts, axis, False)
            plan, _ = draft(small, verdicts)
    return plan.with_refusals(*told), _worst(proofs)


def _remembering(subject: Subject, small: Study, verdicts: Verdicts, plan: Plan) -> tuple[Plan, list[Proof]] | None:
    """The same with modules run on whole sequences that mix tokens in their own way; ``None`` if that is no proof."""
    for kinds in mixers(small, plan.wrapper.base):
        verdicts.histories = kinds
        try:
            return _prove(subject, small, verdicts)
        except RefusedError:
            verdicts.histories = frozenset()
    return None


def _worst(proofs: list[Proof]) -> list[Proof]:
    """One proof per claim: the one with the largest error."""
    worst: dict[str, Proof] = {}
    for proof in proofs:
        if proof.claim not in worst or proof.error > worst[proof.claim].error:
            worst[proof.claim] = proof
    return list(worst.values())


def verdicts_told(plan: Plan) -> tuple[Refusal, ...]:
    """What the small model's proof refused; it is true of the large one as well."""
    return tuple(r for r in plan.refusals if r.wanted in {"tensor", "stages", "fusion"})


def _covered(full: Study, verdicts: Verdicts, proven: Plan) -> Plan:
    """The large plan without any rewritten class that was not run, letter for letter, in a proof."""
    known = {(f.module, f.base, f.text) for f in proven.forwards}
    plan, _ = draft(full, verdicts)
    for _ in plan.forwards:  # each round leaves at least one class as written
        missing = [f for f in plan.forwards if (f.module, f.base, f.text) not in known]
        if not missing:
            break
        for forward in missing:
            if plan.stages is not None and plan.stages.decoder in forward.paths:
                verdicts.stages = False
            call = full.recording.calls[full.recording.same(forward.paths[0])]
            found = f"`{forward.name}` is rewritten as in no small model that runs"
            told = Refusal("fusion", Reason.CANNOT_RUN, found, call.path, place_of(call))
            verdicts.known[key(call)] = Verdict(fused=False, split=False, refusal=told)
        plan, _ = draft(full, verdicts)
    return _fitting(full, verdicts, plan)


def _fitting(full: Study, verdicts: Verdicts, plan: Plan) -> Plan:
    """The large plan without shares of mixers that do not run at full size, whatever they did at a small one."""
    seen: set[Key] = set()
    for path, mixer in stateful_mixers(full).items():
        kind = key(mixer.call)
        split = any(isinstance(op, Recurrence) and op.segments and op.path == path for op in plan.ops)
        if not split or kind in seen:
            continue
        seen.add(kind)
        if why := share_stops(full, plan, path):
            refusal = stays_whole(mixer, f"at full size a share of it does not run: {why}")
            verdicts.known[kind] = replace(verdicts.of(mixer.call), split=False, refusal=refusal)
            plan, _ = draft(full, verdicts)
    return plan
