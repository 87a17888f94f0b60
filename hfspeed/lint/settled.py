"""Where a file was read and its model planned, and both speak of one thing, the planner is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hfspeed.lint.deep import Planned
from hfspeed.lint.engine import Scan, read
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Fix, Severity
from hfspeed.lint.rules import find


def settled(planned: Planned, scanned: Scan, file: Path) -> tuple[Scan, list[Finding]]:
    """What reading ``file`` found, as far as planning bears it out, and what planning found besides."""
    facts = read(file)
    if not isinstance(facts, Facts):
        return scanned, planned.findings
    if planned.served:
        return _served(planned, scanned, facts)
    return _refused(planned, scanned, facts)


def _served(planned: Planned, scanned: Scan, facts: Facts) -> tuple[Scan, list[Finding]]:
    """A finding about a class that is served is told as what it is then; the same line is told once."""
    told = {(one.code, one.place.file, one.place.line) for one in planned.findings}
    same = [one for one in scanned.findings if (one.code, one.place.file, one.place.line) in told]
    borne_out = {(one.code, _around(facts, one.place.line)) for one in same}
    left = [
        still
        for one in scanned.findings
        for still in ([one] if (one.code, _around(facts, one.place.line)) in borne_out else _still(one, planned, facts))
    ]
    known = {(one.code, one.place.file, one.place.line) for one in left}
    news = [one for one in planned.findings if (one.code, one.place.file, one.place.line) not in known]
    mended = [_mended(one, scanned, facts) for one in news]
    return replace(scanned, findings=tuple(left)), mended


def _still(finding: Finding, planned: Planned, facts: Facts) -> list[Finding]:
    rule = find(finding.code)
    cls = facts.classes.get(_around(facts, finding.place.line))
    if rule is None or cls is None or not planned.classes & {one.name for one in facts.lineage(cls)}:
        return [finding]
    if rule.served is None:
        return [] if rule.reasons else [finding]
    severity, cost = rule.served
    return [replace(finding, severity=severity, cost=cost)]


def _mended(one: Finding, scanned: Scan, facts: Facts) -> Finding:
    """``one`` with the edits of what reading found of it elsewhere in the class."""
    around = _around(facts, one.place.line)
    alike = [by for by in scanned.findings if by.code == one.code and by.place.file == one.place.file and by.edits]
    near = [by for by in alike if around and _around(facts, by.place.line) == around]
    return replace(one, fix=near[0].fix, edits=near[0].edits) if len(near) == 1 and not one.edits else one


def _refused(planned: Planned, scanned: Scan, facts: Facts) -> tuple[Scan, list[Finding]]:
    """What the planner refuses at a line of a class stands for what was found there by reading, fix included.

    A refusal that has no line gets the lines that were found by reading.
    """
    left, news = list(scanned.findings), []
    heads = {cls.node.lineno for cls in facts.classes.values()}
    for one in planned.findings:
        alike = [known for known in left if known.code == one.code and known.place.file == one.place.file]
        near = [known for known in alike if _around(facts, known.place.line) == _around(facts, one.place.line)]
        if alike and one.severity is Severity.ERROR and one.place.line in heads:
            left = [replace(k, severity=one.severity, cost=one.cost) if k in alike else k for k in left]
            continue
        left = [known for known in left if known not in near]
        mending = next((known for known in near if known.fix is not Fix.NONE), None)
        news.append(one if mending is None else replace(one, fix=mending.fix, edits=mending.edits))
    return replace(scanned, findings=tuple(left)), news


def _around(facts: Facts, line: int) -> str:
    """The class that ``line`` stands in; empty where it stands in none."""
    for cls in facts.classes.values():
        if cls.node.lineno <= line <= (cls.node.end_lineno or cls.node.lineno):
            return cls.name
    return ""
