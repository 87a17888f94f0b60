"""What was refused, as a reader can mend it: the line, the reason, the remedy and the rule that explains both."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from hfspeed.lint.rule import Rule, lent
from hfspeed.lint.rules import by_reason
from hfspeed.plan import paths
from hfspeed.refusal import Place, Refusal
from hfspeed.report.sides import coloured

WANTED = {
    "tensor": "splitting over ranks",
    "stages": "cutting into stages",
    "declared plan": "the plan in the configuration",
    "heads": "query, key and value as one product",
    "packed_heads": "query, key and value as one product",
    "gated": "activation and product in one kernel",
    "packed_gated": "activation and product in one kernel",
    "siblings": "projections of one input as one product",
    "rms_norm": "the norm in one kernel",
    "rotary": "turning by position in one kernel",
    "positions": "a table of what follows from positions",
    "experts": "experts in one kernel",
    "proof": "what could not be proven",
}
"""What a refusal is of, in words; others are told as they are."""


@dataclass(frozen=True)
class Excerpt:
    """Some lines of the author's file; ``blamed`` are the numbers of those that a refusal is about."""

    lines: tuple[tuple[int, Markup], ...]
    blamed: frozenset[int]


@dataclass(frozen=True)
class Slow:
    """One refusal, or several that differ only in the layer.

    Attributes:
        wanted: what was not done.
        where: the modules.
        found / cost / help: what stands in the way, what it costs, what to write instead.
        place: the file and the line, as told to people; empty where there is none.
        excerpt: that line and those around it.
        rule: the linter's rule that says more.
        why: the rule's own reason.
    """

    wanted: str
    where: str
    found: str
    cost: str
    help: str
    place: str
    excerpt: Excerpt | None
    rule: Rule
    why: str


def slow(refusals: Iterable[Refusal], *, fatal: bool = False) -> list[Slow]:
    """Refusals in the words of their rules; those that differ only in the module are told once.

    With ``fatal`` they keep the model from being served.
    """
    alike: dict[tuple[object, ...], list[Refusal]] = {}
    for one in refusals:
        alike.setdefault((one.wanted, one.reason, one.found, one.place, one.help), []).append(one)
    return [_told(found, fatal) for found in alike.values()]


def short(file: str) -> str:
    """A path without the folder of installed packages."""
    return file.rpartition("site-packages/")[2]


def _told(found: list[Refusal], fatal: bool) -> Slow:
    first = found[0]
    rule = by_reason()[first.reason]
    finding = lent(rule, first, first.place or Place("", 1), fatal=fatal)
    place = f"{short(first.place.file)}:{first.place.line}" if first.place else ""
    return Slow(
        wanted=WANTED.get(first.wanted, first.wanted),
        where=", ".join(paths.merge(one.module for one in found if one.module)),
        found=first.found,
        cost=finding.cost,
        help=finding.help,
        place=place,
        excerpt=_excerpt(first.place) if first.place else None,
        rule=rule,
        why=" ".join((inspect.getdoc(type(rule)) or "").split()),
    )


def _excerpt(place: Place) -> Excerpt | None:
    """The blamed lines, at most six, with two around them."""
    last = min(place.end_line or place.line, place.line + 5)
    text = linecache.getlines(place.file)
    if not text or place.line > len(text):
        return None
    start, stop = max(1, place.line - 2), min(len(text), last + 2)
    shown = coloured("".join(text[start - 1 : stop]).rstrip("\n"))
    return Excerpt(tuple(enumerate(shown, start)), frozenset(range(place.line, last + 1)))
