"""Whether a hint can be true: every child it names must be there."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from hfspeed.hints.hint import Hint, read
from hfspeed.refusal import Place, Reason, Refusal


def false_hints(cls: type, children: Collection[str]) -> list[Refusal]:
    """One refusal for each name, in the hints said of ``cls``, that is none of an instance's ``children``.

    Args:
        cls: the class the hints were said of.
        children: names of the submodules of an instance; dotted names for children of children.
    """
    return [
        missing(hint, role, name, cls.__name__, children)
        for hint in read(cls)
        for role, name in hint.names
        if name not in children
    ]


def missing(hint: Hint, role: str, name: str, module: str, children: Collection[str]) -> Refusal:
    """The refusal of a hint that gives ``role`` to a child that ``module`` does not have."""
    return Refusal(
        wanted=hint.kind,
        reason=Reason.FALSE_HINT,
        found=f"`{role}` names `{name}`, which is no child of `{module}`",
        module=module,
        place=Place(hint.file, hint.line),
        help=help_for(name, children),
    )


def untrue(hint: Hint, module: str, found: str, help: str = "") -> Refusal:
    """The refusal of a hint whose names are there but do not play their part, told at the hint's own line.

    Args:
        hint: the hint that the code disproves.
        module: the class or dotted path it was said of.
        found: one phrase, no full stop, e.g. ``"`layers` is not a list of blocks"``.
        help: what the author can write instead.
    """
    return Refusal(hint.kind, Reason.FALSE_HINT, found, module, Place(hint.file, hint.line), help=help)


def help_for(name: str, children: Collection[str]) -> str:
    """What to write in the place of ``name``: the nearest child, else the choice there is."""
    if near := get_close_matches(name, children, n=1):
        return f"write `{near[0]}`"
    shown = ", ".join(f"`{child}`" for child in sorted(children)[:8])
    return f"name one of {shown}" if shown else "take the name out"
