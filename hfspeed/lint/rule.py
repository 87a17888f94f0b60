"""What a rule is: a code, words, examples, perhaps an analysis. Tests, help and documentation come from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import ClassVar

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Severity
from hfspeed.refusal import Place, Reason, Refusal


class Fix(StrEnum):
    """Whether hfspeed can mend it, and whether the mended file is certain to mean the same."""

    NONE = "none"
    SAFE = "safe"
    UNSAFE = "unsafe"


class Rule:
    """One rule, one file. The docstring of the class says why it is one.

    Attributes:
        code: ``HFS`` and three digits; never reused.
        since: the release that brought it.
        severity: errors and warnings make ``check`` exit with 1.
        message: states; a template, no full stop, names in backticks.
        cost: what is lost, in the terms of a plan; a template.
        help: commands; a template.
        fix: whether hfspeed can mend it.
        bad: lines that it finds, each marked with the code.
        good: the same, written so that it finds nothing.
    """

    code: ClassVar[str]
    since: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    message: ClassVar[str]
    cost: ClassVar[str] = ""
    help: ClassVar[str] = ""
    fix: ClassVar[Fix] = Fix.NONE
    bad: ClassVar[Example]
    good: ClassVar[Example]
    reasons: ClassVar[tuple[Reason, ...]] = ()

    @property
    def name(self) -> str:
        """The class name in kebab case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    def check(self, facts: Facts) -> Iterator[Finding]:  # noqa: ARG002  the plainest rule reads nothing
        """What the rule finds in one file by reading it; a rule that only lends words finds nothing."""
        yield from ()

    def at(self, facts: Facts, node: ast.AST, **words: str) -> Finding:
        """The finding at ``node``, with ``words`` filled into message, cost and help."""
        return self.told(facts.place(node), **words)

    def told(self, place: Place, **words: str) -> Finding:
        """The finding at ``place``, with ``words`` filled into message, cost and help."""
        message, cost = self.message.format_map(words), self.cost.format_map(words)
        return Finding(self.code, self.name, self.severity, message, cost, self.help.format_map(words), place)


class FusionBlocker(Rule):
    """A rule without an analysis: it lends words to the planner's refusals, so that the two cannot disagree.

    The templates know ``wanted``, ``found``, ``module`` and ``reason``. Where a refusal brings a help of its own,
    that is the one told.
    """

    message = "{found}"


def lent(rule: Rule, refusal: Refusal, place: Place) -> Finding:
    """A planner's ``refusal`` in the words of ``rule``; what was found is always the message."""
    module = refusal.module or "the model"
    words = {"wanted": refusal.wanted, "found": refusal.found, "module": module, "reason": str(refusal.reason)}
    cost, remedy = rule.cost.format_map(words), refusal.help or rule.help.format_map(words)
    return Finding(rule.code, rule.name, rule.severity, refusal.found, cost, remedy, place)
