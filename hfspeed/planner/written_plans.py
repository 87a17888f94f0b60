"""The configuration file of a model with the plans that its code allows in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfspeed.errors import UsageError
from hfspeed.plan.styles import StylePlans, attribute
from hfspeed.planner.declared import unmatched
from hfspeed.planner.load import Subject
from hfspeed.planner.looked import Looked, config_of, declared_plans
from hfspeed.planner.overridden import overridden
from hfspeed.planner.styled import Derived, staged_outcome
from hfspeed.source.configuration import with_plans


@dataclass(frozen=True)
class Rewritten:
    """A configuration file before and after."""

    file: Path
    before: str
    after: str
    left: tuple[str, ...] = ()
    """Entries that stay although they match nothing here, each with what it says."""


def rewritten(seen: Looked, derived: Derived, read: Callable[[Path], str]) -> Rewritten:
    """The file of the base model's configuration class, as it would be.

    Args:
        seen: the model.
        derived: its plans.
        read: gives the text of a file, with every line ended by a line feed.

    Raises:
        UsageError: its source cannot be found, or does not hold the class.
    """
    config = config_of(seen)
    owner = type(config)
    try:
        file = Path(inspect.getsourcefile(owner) or "")
        before = read(file)
        plans = _merged(seen, derived.plans, declared_plans(config))
        after = with_plans(before, owner.__name__, plans)
    except (TypeError, OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"the file of {owner.__name__} cannot be rewritten: {error}") from error
    if over := overridden(file, before, after, config, plans):
        raise UsageError(over)
    return Rewritten(file, before, after, tuple(_left(seen, plans, declared_plans(config))))


def _left(seen: Looked, plans: StylePlans, theirs: StylePlans) -> Iterator[str]:
    """Entries that nothing matches and that stay, for the class may have other configurations."""
    base = seen.full.model.get_submodule(seen.base)
    for kind in ("tp", "ep"):
        for name in unmatched(base, theirs.of(kind)):
            if not plans.of(kind) or name in plans.of(kind):
                yield f"`{name}` in {attribute(kind)} matches no module of this configuration"


def foreign(subject: Subject, file: Path) -> str:
    """Why a configuration file may not be written; empty if it lies beside what the user named."""
    folder = subject.folder if subject.folder is not None else Path(subject.name).expanduser().parent
    named = subject.folder is not None or Path(subject.name).suffix == ".py"
    if named and file.resolve().is_relative_to(folder.resolve()):
        return ""
    beside = folder / file.name
    if named and beside.is_symlink() and beside.resolve() == file.resolve():
        return (
            f"{beside} is a symbolic link to {file.resolve()}, which does not lie in {folder}; "
            "put a copy of the file in the place of the link, or see --diff"
        )
    return (
        f"{file} belongs to an installed package, not to {subject.name}; "
        "copy the model's files into a folder of yours, or see --diff"
    )


def _merged(seen: Looked, ours: StylePlans, theirs: StylePlans) -> StylePlans:
    """Ours in the order of theirs. Entries stay that match nothing here, for other configurations of the class may.

    A pipeline plan stays if it names the same modules and is right, whatever it calls what they read.
    """
    base = seen.full.model.get_submodule(seen.base)
    same = list(ours.pp) == list(theirs.pp) and staged_outcome(seen, theirs.pp, 2).equal
    pp: Mapping[str, Any] = {} if same else ours.pp
    parts = []
    for mine, old in ((ours.tp, theirs.tp), (ours.ep, theirs.ep)):
        stay = set(unmatched(base, old))
        merged = _in_order(mine, old, stay) if mine else {}
        parts.append({} if merged == dict(old) else merged)
    return StylePlans(parts[0], pp, parts[1])


def _in_order(mine: Mapping[str, str], old: Mapping[str, str], stay: set[str]) -> dict[str, str]:
    names = [name for name in old if name in mine or name in stay]
    behind = None
    for name in mine:
        if name not in names:
            names.insert(names.index(behind) + 1 if behind is not None else 0, name)
        behind = name
    return {name: mine.get(name, old.get(name, "")) for name in names}
