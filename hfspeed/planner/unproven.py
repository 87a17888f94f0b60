"""What the large model would be served by, and no small one was proven with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan, Proof, laws
from hfspeed.planner.study import Study
from hfspeed.refusal import Reason, Refusal

HELP: Final = "let no branch depend on a size, or name the attribute that it depends on in the configuration"


def unproven(full: Study, plan: Plan, proofs: Iterable[Proof]) -> tuple[Refusal, ...]:
    """One refusal for each kind of op that carries no proof, at the forward of the module that it is for."""
    known = {proof.claim for proof in proofs}
    found: dict[str, Refusal] = {}
    for op in plan.ops:
        if laws.fused(op) and (claim := laws.claim(op)) not in known and claim not in found:
            path = op.path if full.recording.same(op.path) in full.recording.calls else op.path.rpartition(".")[0]
            call = full.recording.calls.get(full.recording.same(path))
            name, what = call.cls.__name__ if call else "it", type(op).__name__.lower()
            text = f"at full size `{name}` is served as `{what}`; at a small size, where it can be proven, it is not"
            place = place_of(call) if call else None
            found[claim] = Refusal("proof", Reason.CANNOT_RUN, text, path, place, help=HELP)
    return tuple(found.values())
