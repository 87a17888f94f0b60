"""What a failed proof is told as: the error, and the line that is most likely to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hfspeed.errors import PlanError
from hfspeed.pattern.first_rows import NAME
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan
from hfspeed.planner.blame import line_of
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.study import Study
from hfspeed.planner.together import meeting
from hfspeed.planner.wrapping import blamed_line
from hfspeed.refusal import Reason, Refusal

if TYPE_CHECKING:
    from hfspeed.planner.load import Subject


def failed(subject: Subject, small: Study, plan: Plan, error: Mismatch | PlanError) -> tuple[Refusal, ...]:
    """Refusals of a small model that could not be proven on one rank, the likeliest reason first."""
    no, met = told(error, "model", subject), meeting(small, plan)
    if no.reason is Reason.WRAPPER_NOT_ROWWISE and met is None:
        met = blamed_line(small, plan)
    return (*_positions(plan, small), *((met,) if met else ()), no)


def told(error: Mismatch | PlanError, wanted: str, subject: Subject) -> Refusal:
    """The error as a refusal; where the author's code raised it, at the line."""
    if not isinstance(error, Mismatch):
        return Refusal(wanted, Reason.NUMBERS_DIFFER, str(error))
    place = error.refusal.place
    if place is None and error.__cause__ is not None:
        place = line_of(error.__cause__, subject.file.parent)
    return replace(error.refusal, wanted=wanted, found=f"{error.refusal.found}, with {error.how}", place=place)


def _positions(plan: Plan, small: Study) -> tuple[Refusal, ...]:
    """The likely reason why packed prompts fail: linear biases need no positions, everything else does."""
    if {"position_ids", NAME} & set(plan.wrapper.keywords):
        return ()
    found = "the base model takes no `position_ids`, so packed prompts would get wrong positions"
    help_ = "let its forward take `position_ids`, and look angles up by them instead of by the length of the row"
    place = place_of(small.recording.calls[plan.wrapper.base])
    return (Refusal("model", Reason.POSITIONS_NOT_READ, found, plan.architecture, place, help=help_),)
