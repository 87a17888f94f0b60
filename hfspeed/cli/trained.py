"""``hfspeed verify --train``: plans in transformers' styles run forward and backward; ``--mutants``: wrong ones too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from hfspeed.errors import UsageError

if TYPE_CHECKING:
    from hfspeed.plan.styles import StylePlans
    from hfspeed.planner.load import Subject
    from hfspeed.planner.looked import Looked
    from hfspeed.planner.styled import Derived

WORDS = {"tp": "rank", "ep": "rank of whole experts", "pp": "stage"}


def trained(subject: Subject, *, tp: Sequence[int], pp: Sequence[int], ep: Sequence[int], mutants: bool) -> None:
    """Print how far logits and gradients are off on ranks and stages, and how many wrong plans are caught."""
    from rich.console import Console

    from hfspeed.planner.looked import look
    from hfspeed.planner.styled import derive

    with Console(stderr=True).status(f"finding the plans of {subject.name}, and running them"):
        seen = look(subject, ranks=max((*tp, 2)), stages=max((*pp, 2)))
        derived = derive(seen, min((count for count in tp if count > 1), default=2))
        fine = _sizes(seen, derived, tp, pp, ep)
    for one in derived.refusals:
        typer.echo(str(one), err=True)
    if not any(map(derived.plans.of, WORDS)):
        raise UsageError(f"{subject.name}: no plan could be found, so there is nothing to train with; see above")
    if mutants:
        with Console(stderr=True).status("running wrong plans"):
            fine = _mutants(seen, derived) and fine
    if not fine:
        raise typer.Exit(1)


def _sizes(seen: Looked, derived: Derived, tp: Sequence[int], pp: Sequence[int], ep: Sequence[int]) -> bool:
    """Run the plans found in code, and those that the configuration declares where they are others."""
    from hfspeed.plan.styles import KINDS, StylePlans
    from hfspeed.planner.looked import config_of, declared_plans

    theirs = declared_plans(config_of(seen))
    same = {kind for kind in KINDS if _same(derived.plans, theirs, kind)}
    other = StylePlans(*({} if kind in same else theirs.of(kind) for kind in KINDS))  # type: ignore[arg-type]
    found = {kind: "found in code, as declared" if kind in same else "found in code" for kind in KINDS}
    sizes = {"tp": tp, "pp": pp, "ep": ep}
    out = _ruled_out(seen, derived.plans, sizes)
    fine = _run(seen, derived.plans, found, sizes, out)
    if not _run(seen, other, dict.fromkeys(KINDS, "declared"), sizes, out):
        print("the declared plan is wrong; `hfspeed plan --check` says where")
        fine = False
    return fine


def _same(ours: StylePlans, theirs: StylePlans, kind: str) -> bool:
    return bool(theirs.of(kind)) and dict(ours.of(kind)) == dict(theirs.of(kind))


def _ruled_out(seen: Looked, plans: StylePlans, sizes: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], str]:
    """Numbers of ranks that the large model does not allow, whoever makes the plan, and why."""
    from hfspeed.plan.styles import under
    from hfspeed.planner.full_size import misfit

    found = {
        (kind, count): misfit(seen.full, under(seen.base, plan), count, kind)
        for kind, plan in (("tp", plans.tp), ("ep", plans.ep))
        for count in sizes[kind] or (2 if kind == "tp" else seen.spread,)
        if count > 1 and plan
    }
    return {case: why for case, why in found.items() if why}


def _run(
    seen: Looked,
    plans: StylePlans,
    whence: Mapping[str, str],
    sizes: Mapping[str, Sequence[int]],
    out: Mapping[tuple[str, int], str],
) -> bool:
    """Run plans, print what came of each, and say whether all was as asked."""
    from hfspeed.planner.styled import prove

    fine = True
    for kind, count, outcome in prove(seen, plans, sizes["tp"] or (1, 2), sizes["pp"] or (1, 2), sizes["ep"]):
        told = f"{kind} plan {whence[kind]}"
        if why := out.get((kind, count)):
            print(f"impossible: {told}, {count} ranks: {why}")
            fine = fine and count not in sizes[kind]
            continue
        word = WORDS[kind]
        many = word if count == 1 else word.replace("rank", "ranks").replace("stage", "stages")
        print(f"{'equal' if outcome.equal else 'unequal'}: {told}, {count} {many}: {outcome}")
        fine = fine and outcome.equal
    return fine


def _mutants(seen: Looked, derived: Derived) -> bool:
    from hfspeed.planner.mutants import killed

    found = killed(seen, derived.plans, derived.ranks)
    wrong = len(found.caught) + len(found.alive)
    print(f"wrong plans caught: {len(found.caught)} of {wrong}")
    for mutant in found.alive:
        print(f"  not caught: {mutant.kind} plan, {mutant.what}")
    for mutant in found.equivalent:
        print(f"  as right as before: {mutant.kind} plan, {mutant.what} ({mutant.argument})")
    return not found.alive
