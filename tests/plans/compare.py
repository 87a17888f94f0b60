"""One plan written by hand against the one found from code: which splits more, which is right, and the proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from hfspeed.plan.styles import KINDS, style_of, under
from hfspeed.planner.declared import unmatched
from hfspeed.planner.full_size import misfit
from hfspeed.planner.looked import Looked, config_of, declared_plans
from hfspeed.planner.styled import Derived, prove

SAME, EQUIVALENT, BETTER, WORSE, NOT = (
    "same", "different but equivalent", "ours better", "theirs right", "not inferred",
)  # fmt: skip
ALIKE = 0.005
"""Plans are alike that share out parts of the weights that differ by less."""
VERDICTS = (SAME, EQUIVALENT, BETTER, WORSE, NOT)
SPLIT = {
    "colwise", "rowwise", "packed_colwise", "packed_rowwise", "colwise_gather_output", "rowwise_split_input",
    "embedding_rowwise", "grouped_gemm", "colwise_rep", "rowwise_rep",
}  # fmt: skip
HELD_ONLY = {"colwise_gather_output", "rowwise_split_input", "colwise_rep", "rowwise_rep"}


def compared(seen: Looked, derived: Derived) -> dict[str, dict[str, Any]]:
    """Kind of plan -> verdict, why, both plans and both proofs; kinds without a plan by hand are left out."""
    theirs = declared_plans(config_of(seen))
    outcomes = {
        who: {kind: outcome for kind, _, outcome in found}
        for who, found in (("theirs", prove(seen, theirs)), ("ours", derived.outcomes))
    }
    result = {}
    for kind in KINDS:
        if not theirs.of(kind):
            continue
        hand, code = dict(theirs.of(kind)), dict(derived.plans.of(kind))
        right = {who: (found[kind].equal if kind in found else None) for who, found in outcomes.items()}
        verdict, why = _verdict(seen, kind, hand, code, right, str(outcomes["theirs"].get(kind, "")))
        told = [
            r.found for r in derived.refusals if r.wanted.startswith(kind) or (kind == "pp" and r.wanted == "stages")
        ]
        result[kind] = {
            "verdict": verdict,
            "why": why + (f"; {'; '.join(told)}" if told and verdict in (WORSE, NOT) else ""),
            "by hand": hand,
            "from code": code,
            "proof by hand": str(outcomes["theirs"].get(kind, "")),
            "proof from code": str(outcomes["ours"].get(kind, "")),
        }
    return result


def _verdict(
    seen: Looked, kind: str, hand: dict[str, Any], code: dict[str, Any], right: Mapping[str, bool | None], proof: str
) -> tuple[str, str]:
    base = seen.full.model.get_submodule(seen.base)
    idle = unmatched(base, hand)
    used = {name: entry for name, entry in hand.items() if name not in idle}
    nothing = f"by hand also names {', '.join(idle)}, which the default configuration does not have" if idle else ""
    if used == code:
        return (EQUIVALENT if idle else SAME), nothing
    if not code:
        why = f"by hand does not hold ({proof}), and no plan does"
        return (BETTER, why) if right["theirs"] is False else (NOT, "")
    if not right["ours"]:
        return (WORSE if right["theirs"] else NOT), "ours is not proven"
    if not right["theirs"]:
        shapes = misfit(seen.full, under(seen.base, used), 2, kind) if kind != "pp" else ""
        proof += f"; at full size: {shapes}" if shapes else ""
        return BETTER, "; ".join(part for part in (f"by hand does not hold: {proof}", nothing) if part)
    if kind == "pp":
        same = list(used) == list(code)
        return (EQUIVALENT, nothing or "other names for what modules read") if same else _stages(used, code)
    return _more(seen, kind, used, code, nothing)


def _stages(hand: dict[str, Any], code: dict[str, Any]) -> tuple[str, str]:
    only = [name for name in code if name not in hand], [name for name in hand if name not in code]
    told = "; ".join(f"{who} also names {', '.join(n)}" for who, n in zip(("ours", "by hand"), only, strict=True) if n)
    return EQUIVALENT, told or "another order"


def _more(seen: Looked, kind: str, hand: dict[str, str], code: dict[str, str], nothing: str) -> tuple[str, str]:
    theirs, ours = shares(seen, hand, kind), shares(seen, code, kind)
    told = (
        f"held in shares: {_percent(theirs[0])} of the weights by hand, {_percent(ours[0])} by ours; "
        f"computed in shares: {_percent(theirs[1])} and {_percent(ours[1])}"
    )
    told = "; ".join(part for part in (told, nothing) if part)
    held, computed = ours[0] - theirs[0], ours[1] - theirs[1]
    if max(abs(held), abs(computed)) < ALIKE:
        return EQUIVALENT, told
    return (BETTER if computed >= ALIKE or (held >= ALIKE and computed > -ALIKE) else WORSE), told


def shares(seen: Looked, plan: Mapping[str, str], kind: str = "tp") -> tuple[float, float]:
    """Which part of the base model's weights is held in shares, and which part is also computed with in shares.

    Tables of tokens are left out: transformers splits them by itself where they are tied. Of plans for experts only
    whole experts count: the other entries of some are what the tensor-parallel plan says too.
    """
    base: nn.Module = seen.full.model.get_submodule(seen.base)
    tables = {id(one.weight) for one in base.modules() if isinstance(one, nn.Embedding)}
    everything = held = computed = 0
    for name, one in base.named_parameters():
        if id(one) in tables:
            continue
        style = style_of(name, plan, parameter=True)
        everything += one.numel()
        counted = SPLIT if kind == "tp" else {"grouped_gemm"}
        held += one.numel() if style in counted else 0
        computed += one.numel() if style in counted - HELD_ONLY else 0
    return held / everything, computed / everything


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"
