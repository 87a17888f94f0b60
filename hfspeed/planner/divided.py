"""The proof of a plan on several ranks or stages."""

from __future__ import annotations

from hfspeed.emit import emitted
from hfspeed.errors import PlanError
from hfspeed.plan import Plan, Proof
from hfspeed.planner.draft import draft
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.prove import prove
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import Verdicts


def divided(
    small: Study, verdicts: Verdicts, plan: Plan, ranks: tuple[int, ...], stages: tuple[int, ...]
) -> tuple[Plan, list[Proof]]:
    """A proof on ranks or stages; where a decoder lies deep, what crosses a cut may have to be handed down to it."""
    try:
        return plan, _proven(small, plan, ranks, stages)
    except (Mismatch, PlanError):
        deep = max(stages) > 1 and plan.stages is not None and plan.stages.decoder != plan.wrapper.base
        if not deep or verdicts.handed:
            raise
        verdicts.handed = True
        try:
            other, _ = draft(small, verdicts)
            proofs = prove(other, small.fresh, emitted(other), ranks=(1,), stages=(1,))
            return other, proofs + _proven(small, other, ranks, stages)
        except (Mismatch, PlanError):
            verdicts.handed = False
            raise


def _proven(small: Study, plan: Plan, ranks: tuple[int, ...], stages: tuple[int, ...]) -> list[Proof]:
    """The proofs; of a plan that is cut, between all layers as well: what an engine makes of it may be any of these."""
    proofs = prove(plan, small.fresh, emitted(plan), ranks=ranks, stages=stages)
    if max(stages) > 1 and plan.stages is not None and plan.stages.count > max(stages):
        proofs += prove(plan, small.fresh, emitted(plan), ranks=(1,), stages=(plan.stages.count,))
    return proofs
