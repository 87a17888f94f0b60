"""Whether a plan can be built on the ranks and stages that vLLM was told to use."""

from __future__ import annotations

from hfspeed.errors import RefusedError, UsageError
from hfspeed.plan import Plan, laws
from hfspeed.refusal import Reason, Refusal


def check(plan: Plan, *, ranks: int, stages: int) -> None:
    """Raise unless ``plan`` can be laid out so.

    Raises:
        RefusedError: the plan rules it out, for its own reasons or because sizes do not divide.
    """
    refused: tuple[Refusal, ...] = ()
    if ranks > 1 and not plan.tensor:
        refused += _why(plan, "tensor", "this model cannot be split over ranks", "--tensor-parallel-size 1")
    if stages > 1 and plan.stages is None:
        refused += _why(plan, "stages", "this model cannot be cut into stages", "--pipeline-parallel-size 1")
    if not refused:
        broken = laws.once([*laws.division(plan, ranks), *laws.partition(plan, stages)])
        refused = tuple(Refusal("layout", Reason.DOES_NOT_DIVIDE, text, plan.architecture) for text in broken)
    if refused:
        raise RefusedError(f"{plan.architecture} on {ranks} ranks and {stages} stages", refused)


def check_length(plan: Plan, longest: int) -> None:
    """Raise if a prompt of ``longest`` tokens has positions that no table of the model has rows for.

    Raises:
        UsageError: prompts may be shorter only.
    """
    room = plan.wrapper.room
    if room and longest > room:
        raise UsageError(
            f"{plan.architecture} has rows for the positions of {room} tokens, and vLLM was told to take {longest}; "
            f"serve it with --max-model-len {room}"
        )


def _why(plan: Plan, wanted: str, otherwise: str, option: str) -> tuple[Refusal, ...]:
    """The plan's own refusals of an axis."""
    told = tuple(refusal for refusal in plan.refusals if refusal.wanted == wanted)
    return told or (Refusal(wanted, Reason.NOT_SPLIT, otherwise, plan.architecture, help=f"serve it with {option}"),)
