"""A fusion: a pattern, a check, a rewrite and plan ops; and the engine that applies one at a site."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from torch import fx

from hfspeed.example import Example
from hfspeed.graph.nodes import is_linear, peeled
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.match import Match, bindings
from hfspeed.pattern.site import Site
from hfspeed.pattern.terms import Pattern, Product, Term
from hfspeed.plan import Op
from hfspeed.refusal import Refused


class Fusion:
    """One way to compute the same numbers with fewer or better kernels.

    A subclass gives ``name``, ``fuses`` and ``refuses``, then ``pattern``, ``check``, ``rewrite``, ``plan``.
    The pattern is loose: what it does not see is silent. The check is strict: what it refuses is told.
    """

    name: ClassVar[str]
    fuses: ClassVar[tuple[Example, ...]]
    refuses: ClassVar[tuple[Example, ...]]

    def pattern(self, p: Pattern) -> Term:
        """What makes a reader think of this fusion."""
        raise NotImplementedError

    def check(self, m: Match) -> None:
        """Pass, or raise `Refused`."""
        raise NotImplementedError

    def rewrite(self, m: Match) -> list[Change]:
        """The source changes; raises `Refused` if the source does not allow them."""
        raise NotImplementedError

    def plan(self, m: Match) -> Iterator[Op]:
        """The plan ops."""
        raise NotImplementedError

    def note(self, m: Match) -> str:
        """One phrase for people."""
        raise NotImplementedError

    def apply(self, site: Site) -> None:
        """Apply it wherever it matches at ``site``; refusals are kept on the site."""
        term = self.pattern(Pattern())
        for node in list(site.graph.nodes):
            for match in _matches(self, term, site, node):
                try:
                    self.check(match)
                    changes = self.rewrite(match)
                    changed(site.recovered, [*site.changes, *changes]) if changes else None
                except Refused as no:
                    told = replace(no.refusal, wanted=self.name, near=len(match.bound))
                    site.refusals.append(told.at(site.path, site.place(node)))
                    continue
                _take(self, site, match, changes)
                break


def apply(fusion: Fusion, site: Site) -> None:
    """Apply ``fusion`` wherever it matches at ``site``."""
    fusion.apply(site)


def _matches(fusion: Fusion, term: Term, site: Site, node: fx.Node) -> Iterator[Match]:
    if isinstance(term, Product) and peeled(node) is not node:
        return  # a copy of the product stands at another expression than the product itself
    for names in bindings(term, node, {}):
        linears = {n for n in names.values() if is_linear(n)}
        if linears and not any(n.meta.get("claimed") for n in linears):
            yield Match(fusion.name, site, node, names)


def _take(fusion: Fusion, site: Site, match: Match, changes: list[Change]) -> None:
    ops = list(fusion.plan(match))
    site.notes.append(fusion.note(match))
    site.ops += ops
    site.changes += changes
    for bound in match.bound.values():
        if is_linear(bound.node):
            bound.node.meta["claimed"] = fusion.name
    prefix = f"{site.path}." if site.path else ""
    for op in ops:
        name = op.path.removeprefix(prefix)
        site.promised += [name, f"{name}_sizes"] if hasattr(op, "parts") else [name]
        site.promised += [f"{name}_head_sizes"] if f".{name}_head_sizes[" in site.text() else []
