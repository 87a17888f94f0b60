"""Runs the rules over one file by reading it; nothing is imported or executed."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hfspeed.lint.disk import Disk
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.ignores import EVERY, Directive, directives
from hfspeed.lint.nodes import gather
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import find, rules
from hfspeed.lint.silence import heard
from hfspeed.refusal import Place


@dataclass(frozen=True)
class Scan:
    """What one file says: all that every rule finds in it, before its author is heard.

    Attributes:
        findings: in order.
        directives: the comments that silence.
        causal: whether it defines a causal language model, so that it can be planned.
        hub: whether its folder brings its own code.
    """

    findings: tuple[Finding, ...]
    directives: tuple[Directive, ...] = ()
    causal: bool = False
    hub: bool = False


def read(path: Path, disk: Disk | None = None) -> Facts | Finding:
    """The facts of one file, or the finding that it cannot be read."""
    disk = disk or Disk()
    try:
        text = disk.text(path)
    except (SyntaxError, UnicodeError, LookupError, OSError) as error:
        return _unreadable(path, str(error))
    return parse(text, path, disk)


def parse(text: str, path: Path, disk: Disk | None = None) -> Facts | Finding:
    """The facts of ``text``, as if it stood at ``path``, or the finding that it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of a string's escapes is not ours to tell
            tree = ast.parse(text, str(path))
    except SyntaxError as error:
        lines = text.split("\n")
        line = min(error.lineno or 1, len(lines))
        column = min(max(error.offset or 1, 1), len(lines[line - 1]) + 1)
        return _unreadable(path, error.msg, line, column, len(lines[line - 1]) + 1)
    except (ValueError, RecursionError, MemoryError) as error:
        return _unreadable(path, str(error) or "it is nested too deeply")
    gather(tree)
    return Facts(path, text, tree, disk or Disk())


def scan(facts: Facts | Finding, chosen: Iterable[Rule] | None = None) -> Scan:
    """Run every rule, or those that are chosen, over one file."""
    if isinstance(facts, Finding):
        return Scan((facts,))
    try:
        found = {finding for rule in (rules() if chosen is None else chosen) for finding in rule.check(facts)}
    except RecursionError:
        return Scan((_unreadable(facts.path, "an expression in it is nested too deeply to follow"),))
    ordered = tuple(sorted(found, key=lambda finding: finding.order))
    return Scan(ordered, directives(facts.text), bool(facts.causal), is_hub_folder(facts.path.parent, facts.disk))


def check(facts: Facts | Finding, chosen: Iterable[Rule] | None = None) -> list[Finding]:
    """What the rules find in one file by reading it, in order, without what its author has silenced."""
    wanted = list(rules() if chosen is None else chosen)
    file = facts.place.file if isinstance(facts, Finding) else str(facts.path)
    return told(scan(facts, wanted), file, wanted)


def told(scanned: Scan, file: str, chosen: Iterable[Rule], planned: Sequence[Finding] | None = None) -> list[Finding]:
    """What is left of a file's findings, and the planner's where there are some, when its author is heard."""
    wanted = {rule.code: rule for rule in chosen}
    found = [*scanned.findings, *(planned or ())]
    # A planner that met an error may not have come to the rest.
    whole = planned is not None and not any(one.severity is Severity.ERROR for one in planned)
    judged = {code for code, rule in wanted.items() if whole or not rule.reasons}
    if judged >= {rule.code for rule in rules() if not rule.preview}:
        judged.add(EVERY)
    if not whole:
        judged.discard("HFS901")
    found = [finding for finding in found if finding.code in wanted]
    return sorted(heard(found, scanned.directives, file, judged), key=lambda finding: finding.order)


def _unreadable(path: Path, error: str, line: int = 1, column: int = 1, end: int = 1) -> Finding:
    """Told from where the parser stopped to the end of that line; at the first character if it did not say."""
    rule = find("HFS001")
    assert rule is not None
    return rule.told(Place(str(path), line, column, line, max(end, column)), error=error)
