"""The large model and the small one that stands for it, with a first plan: looked at, and not yet judged."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hfspeed.errors import RefusedError, SubjectError
from hfspeed.plan import Plan
from hfspeed.planner.causal import begun
from hfspeed.planner.layers import depths
from hfspeed.planner.load import Subject
from hfspeed.planner.room import room
from hfspeed.planner.shrink import shrink
from hfspeed.planner.spans import spans, untold, whole
from hfspeed.planner.starts import first_position
from hfspeed.planner.study import Study, study
from hfspeed.planner.ways import other_turns, other_ways
from hfspeed.planner.written import Writing
from hfspeed.refusal import Reason, Refusal


def beginning(
    subject: Subject,
    built: Any = None,
    ranks: int = 2,
    stages: int = 2,
    *,
    as_written: bool = False,
    writing: Writing | None = None,
) -> tuple[Study, Plan, Study]:
    """The large model, a first plan of it, and the small one; begun again where masks say more than keywords do."""
    modules = writing.modules if writing else None
    full, first = begun(subject, built, as_written=as_written, written=modules)
    servable(subject, first)
    small = _small(subject, full, first, ranks, stages, writing=writing)
    if untold(small):
        full, first = begun(subject, spans=whole(subject, full), written=modules)
        servable(subject, first)
        small = _small(subject, full, first, ranks, stages, by_mask=True, writing=writing)
    full.room = room(full)
    return full, first, small


def _small(
    subject: Subject,
    full: Study,
    first: Plan,
    ranks: int,
    stages: int,
    *,
    by_mask: bool = False,
    writing: Writing | None = None,
) -> Study:
    few, *more = depths(first, stages)
    small = _smaller(subject, full, few, ranks, by_mask, writing)
    if more and (other_ways(full.recording, small.recording) or other_turns(full.recording, small.recording)):
        with suppress(SubjectError):  # of so many layers it may be too large to be run
            small = _smaller(subject, full, more[0], ranks, by_mask, writing)
    if full.masked:
        small.take_masks()
    _begin(full, small)
    return small


def _smaller(
    subject: Subject, full: Study, layers: int, ranks: int, by_mask: bool, writing: Writing | None = None
) -> Study:
    config = shrink(
        subject.config,
        subject.model_class,
        layers=layers,
        ranks=ranks,
        windows=full.windows | (writing.windows if writing else frozenset()),
        interface=full.interface and writing is None,
        built=full.model if writing is None else None,
    )
    modules = writing.of(subject.model_class, config) if writing else None
    known = spans(subject.model_class, config, modules) if by_mask else None
    return study(
        subject.model_class, config, real=True, interface=full.interface, shut=full.shut, spans=known, written=modules
    )


def _begin(full: Study, small: Study) -> None:
    """Find out where positions begin; hardly a model does not begin at 0, so the large one is asked last."""
    if not first_position(small):
        return  # at 0, or made in some way that the proof will judge
    for one in (small, full):
        start = first_position(one)
        if start is None:
            found = "positions are made of token ids, and not by counting them"
            raise RefusedError(
                type(full.model).__name__,
                (Refusal("model", Reason.POSITIONS_NOT_READ, found, type(full.model).__name__),),
            )
        one.first_position = start


def servable(subject: Subject, plan: Plan) -> None:
    """Refuse what could only be served wrongly."""
    if fatal := tuple(r for r in plan.refusals if r.wanted in {"attention", "recurrence"}):
        raise RefusedError(subject.name, fatal)
