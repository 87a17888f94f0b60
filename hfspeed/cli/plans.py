"""What ``hfspeed plan`` does about the three plans of a transformers configuration: check, show or write them."""

from __future__ import annotations

import sys
from difflib import unified_diff
from typing import TYPE_CHECKING

import typer

from hfspeed.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from hfspeed.planner.load import Subject
    from hfspeed.planner.looked import Looked
    from hfspeed.planner.styled import Derived


def check(name: str, *, trust: bool, tp: int, pp: int, ep: int) -> None:
    """Print what is wrong with the declared plans; exit with 1 if anything is."""
    from hfspeed.planner import declared_check

    _, seen, derived = _found(name, trust, tp, asked=False)
    found = declared_check.check(seen, derived, ranks=(tp,), stages=(pp,), spread=(ep,))
    for one in found:
        print(one)
    if found:
        print(f"{len(found)} finding{'' if len(found) == 1 else 's'}", file=sys.stderr)
        raise typer.Exit(1)
    print("the declared plans are right", file=sys.stderr)


def write(name: str, *, trust: bool, only_show: bool, tp: int) -> None:
    """Put the plans into the configuration file, or show as a diff what would be put; ``tp``: for so many ranks."""
    from hfspeed.lint.disk import Disk
    from hfspeed.planner.written_plans import foreign, rewritten

    subject, seen, derived = _found(name, trust, tp, asked=True)
    made = rewritten(seen, derived, Disk().text)
    for one in derived.refusals:
        print(one, file=sys.stderr)
    for kind, count, outcome in derived.outcomes:
        print(f"{kind} plan on {count}: {outcome}", file=sys.stderr)
    if wrong := [kind for kind, _, outcome in derived.outcomes if not outcome.equal]:
        raise UsageError(f"{name}: the {' and '.join(wrong)} plan could not be proven, so nothing is written")
    if only_show:
        names = (str(made.file), f"{made.file} with plans")
        sys.stdout.writelines(unified_diff(made.before.splitlines(True), made.after.splitlines(True), *names))
    elif made.before == made.after:
        print(f"{made.file} is up to date", file=sys.stderr)
    elif why := foreign(subject, made.file):
        raise UsageError(why)
    else:
        _put(made.file, made.after)
        print(f"wrote {made.file}", file=sys.stderr)
    for entry in made.left:
        print(f"left: {entry}; --check will tell of it", file=sys.stderr)


def _put(file: Path, text: str) -> None:
    from hfspeed.lint.disk import Disk

    disk = Disk({file: text})
    if not disk.mendable(file):
        raise UsageError(f"{file}: its lines end in different ways; let them all end alike, or see --diff")
    disk.write()


def _found(name: str, trust: bool, ranks: int, *, asked: bool) -> tuple[Subject, Looked, Derived]:
    """The plans for ``ranks``; for two if the model's sizes rule these out and nobody ``asked`` for them."""
    from rich.console import Console

    from hfspeed.planner.declared_sizes import causes
    from hfspeed.planner.load import load
    from hfspeed.planner.looked import RANKS, look
    from hfspeed.planner.styled import derive

    with Console(stderr=True).status(f"planning {name}, on simulated ranks"):
        subject = load(name, trust_remote_code=trust)
        seen = look(subject)
        if ranks <= RANKS or (not asked and any(causes(seen, ranks))):
            return subject, seen, derive(seen)
        seen = look(subject, ranks=ranks)
        return subject, seen, derive(seen, ranks)
