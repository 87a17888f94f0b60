"""What a rule is: a code, words, examples, perhaps an analysis. Tests, help and documentation come from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Fix, Severity
from hfspeed.refusal import Place, Reason, Refusal


class Rule:
    """One rule, one file. The docstring of the class says why it is one.

    Attributes:
        code: ``HFS`` and three digits; never reused.
        since: the release that brought it.
        severity: errors and warnings make ``check`` exit with 1.
        message: states; a template, no full stop, names in backticks.
        cost: what is lost, in the terms of a plan; a template.
        help: commands; a template.
        versions: what it was tried with.
        bad: lines that it finds, each marked with the code.
        good: the same, written so that it finds nothing.
        reasons: why the planner refuses; it speaks in the words of this rule then.
        served: how bad it is, and what is lost, where a planner serves the model all the same; without it, a finding
            by a rule with reasons was mistaken there.
        preview: whether it may still change; it is run only with ``--preview``.
        first: the first version of each package that it is about, where older ones are spared by ``--target``.
    """

    code: ClassVar[str]
    since: ClassVar[str]
    severity: ClassVar[Severity] = Severity.WARNING
    message: ClassVar[str]
    cost: ClassVar[str] = ""
    help: ClassVar[str] = ""
    versions: ClassVar[str] = "transformers 5.16 and later, vLLM 0.32 and later"
    bad: ClassVar[Example]
    good: ClassVar[Example]
    reasons: ClassVar[tuple[Reason, ...]] = ()
    served: ClassVar[tuple[Severity, str] | None] = None
    preview: ClassVar[bool] = False
    first: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def name(self) -> str:
        """The class name in kebab case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    @property
    def fix(self) -> Fix:
        """Whether hfspeed can mend it, which is whether the rule has a method that says how."""
        if type(self).mend is not Rule.mend:
            return Fix.SAFE
        return Fix.UNSAFE if type(self).propose is not Rule.propose else Fix.NONE

    def check(self, facts: Facts) -> Iterator[Finding]:  # noqa: ARG002  the plainest rule reads nothing
        """What the rule finds in one file by reading it; a rule that only lends words finds nothing."""
        yield from ()

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:  # noqa: ARG002
        """The edits after which the finding at ``node`` is gone and every number and name is what it was."""
        yield from ()

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:  # noqa: ARG002
        """The edits after which the finding at ``node`` is gone, where the author should look at them."""
        yield from ()

    def at(self, facts: Facts, node: ast.AST, **words: str) -> Finding:
        """The finding at ``node``, with ``words`` filled into message, cost and help, and what mends it."""
        edits = tuple((self.mend if self.fix is Fix.SAFE else self.propose)(facts, node))
        return self.told(facts.place(node), edits, **words)

    def told(self, place: Place, edits: tuple[Edit, ...] = (), **words: str) -> Finding:
        """The finding at ``place``, with ``words`` filled into message, cost and help."""
        message, cost, remedy = (text.format_map(words) for text in (self.message, self.cost, self.help))
        fix = self.fix if edits else Fix.NONE
        return Finding(self.code, self.name, self.severity, message, cost, remedy, place, fix, edits)


class FusionBlocker(Rule):
    """A rule without an analysis: it lends words to the planner's refusals, so that the two cannot disagree.

    The templates know ``wanted``, ``found``, ``module`` and ``reason``. Where a refusal brings a help of its own,
    that is the one told.
    """

    message = "{found}"


NOT_DONE = {"tensor": "the model is not split over ranks", "stages": "the model is not cut into stages"}


def lent(rule: Rule, refusal: Refusal, place: Place, *, fatal: bool) -> Finding:
    """A planner's ``refusal`` in the words of ``rule``; what was found is always the message.

    It is an error if it is ``fatal``: nothing is served then. Else something is slower, which is never an error.
    """
    module = refusal.module or "the model"
    words = {"wanted": refusal.wanted, "found": refusal.found, "module": module, "reason": str(refusal.reason)}
    cost, remedy = rule.cost.format_map(words), refusal.help or rule.help.format_map(words)
    severity = rule.severity
    if fatal:
        severity, cost = Severity.ERROR, "the model cannot be served"
    elif severity is Severity.ERROR:
        severity, cost = Severity.WARNING, NOT_DONE.get(refusal.wanted, f"`{module}` runs as it is written")
    return Finding(rule.code, rule.name, severity, refusal.found, cost, remedy, place)
