"""``hfspeed verify --train``: plans in transformers' styles run forward and backward; ``--mutants``: wrong ones too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from hfspeed.errors import UsageError

if TYPE_CHECKING:
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
        derived = derive(seen)
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
    from hfspeed.plan.styles import under
    from hfspeed.planner.full_size import misfit
    from hfspeed.planner.styled import prove

    fine = True
    for kind, count, outcome in prove(seen, derived.plans, tp or (1, 2), pp or (1, 2), ep):
        plan = under(seen.base, derived.plans.ep if kind == "ep" else derived.plans.tp)
        if kind != "pp" and count > 1 and (why := misfit(seen.full, plan, count, kind)):
            print(f"impossible: {kind} plan, {count} ranks: {why}")
            continue
        word = WORDS[kind]
        many = word if count == 1 else word.replace("rank", "ranks").replace("stage", "stages")
        print(f"{'equal' if outcome.equal else 'unequal'}: {kind} plan, {count} {many}: {outcome}")
        fine = fine and outcome.equal
    return fine


def _mutants(seen: Looked, derived: Derived) -> bool:
    from hfspeed.planner.mutants import killed

    found = killed(seen, derived.plans)
    wrong = len(found.caught) + len(found.alive)
    print(f"wrong plans caught: {len(found.caught)} of {wrong}")
    for mutant in found.alive:
        print(f"  not caught: {mutant.kind} plan, {mutant.what}")
    for mutant in found.equivalent:
        print(f"  as right as before: {mutant.kind} plan, {mutant.what} ({mutant.argument})")
    return not found.alive
