"""Whether a plan can be laid out on the ranks and stages that somebody asked for, and if not, why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hfspeed.errors import UsageError

if TYPE_CHECKING:
    from hfspeed.plan import Plan


def impossible(plan: Plan, *, ranks: int = 1, stages: int = 1, spread: int = 1) -> list[str]:
    """What of a model rules these numbers out, a line each; empty if they are possible, or it is not split at all."""
    from hfspeed.plan import Experts, laws
    from hfspeed.plan.sizes import ruled_out

    counts = [op.count for op in plan.ops if isinstance(op, Experts)]
    told = [] if not counts or spread <= min(counts) else [f"a layer has {min(counts)} experts, and a rank needs one"]
    if plan.tensor and ranks > 1:
        told += [why.replace(": ", f": {ranks} does not divide ", 1) for _, why in ruled_out(plan, ranks)]
    told += laws.partition(plan, stages) if plan.stages is not None else ()
    return laws.once(told)


def possible(plan: Plan, *, ranks: int, stages: int, spread: int = 1) -> None:
    """Check a layout; ``spread`` is among how many ranks whole experts are spread.

    Raises:
        UsageError: the plan rules it out; the message has its refusals, or the sizes that do not divide.
    """
    from hfspeed.plan import Experts, laws, text

    counts = [op.count for op in plan.ops if isinstance(op, Experts)]
    if spread > min(counts, default=1):
        has = f"layers with {min(counts)} experts" if counts else "no experts that can be spread"
        told = "\n".join(f"  {line}" for line in text.refused(one for one in plan.refusals if one.wanted == "experts"))
        raise UsageError(f"--ep {spread}: {plan.architecture} has {has}" + (f":\n{told}" if told else ""))
    if spread > 1 and spread % ranks:
        raise UsageError(
            f"--tp {ranks} --ep {spread}: whole experts are spread over the ranks of all replicas, so --ep "
            f"has to be a multiple of --tp, for instance {ranks * -(-spread // ranks)}"
        )
    asked = f"--tp {ranks} --pp {stages}"
    for wanted, able, axes in (
        (ranks > 1, plan.tensor, {"tensor"}),
        (stages > 1, plan.stages is not None, {"stages", "pipeline"}),
    ):
        if wanted and not able:
            what = "split over ranks" if axes == {"tensor"} else "cut into stages"
            why = text.refused(one for one in plan.refusals if one.wanted in axes)
            told = "\n".join(f"  {line}" for line in why) or "  the plan does not say why"
            raise UsageError(f"{asked}: {plan.architecture} cannot be {what}:\n{told}")
    if broken := laws.once([*laws.division(plan, ranks), *laws.partition(plan, stages)]):
        raise UsageError(f"{asked}: {plan.architecture} cannot be laid out so:\n" + "\n".join(f"  {x}" for x in broken))
