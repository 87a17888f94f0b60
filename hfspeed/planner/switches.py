"""Which fusions are on: all of them, or what ``HFSPEED_FUSIONS`` leaves."""

from __future__ import annotations

import difflib
import os
from typing import NamedTuple

from hfspeed.errors import UsageError
from hfspeed.fusions import FUSIONS, REPLACEMENTS
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.replacement import Replacement

VARIABLE = "HFSPEED_FUSIONS"
NONE = "none"
ALWAYS = frozenset({"attention"})
"""What a model cannot be served without."""


class Active(NamedTuple):
    """The fusions that are on, each kind in its own order."""

    fusions: tuple[Fusion, ...]
    replacements: tuple[Replacement, ...]


def active() -> Active:
    """What the planner may use.

    Raises:
        UsageError: the variable names something that is no fusion, or that cannot be switched off.
    """
    out = switched_off()
    return Active(
        tuple(fusion for fusion in FUSIONS if fusion.name not in out),
        tuple(replacement for replacement in REPLACEMENTS if replacement.name not in out),
    )


def switched_off() -> tuple[str, ...]:
    """The names that are off, in the order of the alphabet; part of what a plan depends on.

    ``HFSPEED_FUSIONS=none`` is everything that can be off, ``-gated,-heads`` those two; unset or empty is nothing.

    Raises:
        UsageError: as `active`.
    """
    words = [word.strip() for word in os.environ.get(VARIABLE, "").split(",") if word.strip()]
    known = {entry.name for entry in FUSIONS} | {entry.name for entry in REPLACEMENTS} - ALWAYS
    if words == [NONE]:
        return tuple(sorted(known))
    return tuple(sorted({_name(word, known) for word in words}))


def _name(word: str, known: set[str]) -> str:
    name = word.removeprefix("-")
    if name in ALWAYS:
        raise UsageError(f"{VARIABLE}: `{name}` cannot be switched off, no model is served without it")
    if name not in known:
        near = difflib.get_close_matches(name, [*known, NONE], n=2)
        asked = " or ".join(f"`{entry if entry == NONE else f'-{entry}'}`" for entry in near)
        meant = f"did you mean {asked}?" if near else f"write `{NONE}`, or names after a minus"
        raise UsageError(f"{VARIABLE}: there is no fusion `{name}`; {meant} Known: {', '.join(sorted(known))}")
    if not word.startswith("-"):
        raise UsageError(f"{VARIABLE}: found `{word}`; write `-{word}` to switch it off, or `{NONE}`")
    return name
