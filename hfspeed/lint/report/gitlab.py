"""Findings as GitLab's code quality report."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps

from rich.text import Text

from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.report.fingerprint import fingerprints, relative

LEVELS = {Severity.ERROR: "critical", Severity.WARNING: "minor", Severity.INFO: "info"}


def gitlab(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """A list of issues; a fingerprint holds when lines move."""
    issues = [_issue(one, mark) for one, mark in zip(findings, fingerprints(findings), strict=True)]
    return Text(dumps(issues, indent=2))


def _issue(finding: Finding, mark: str) -> dict[str, object]:
    place = finding.place
    begin = {"line": place.line, "column": place.column}
    end = {"line": place.end_line or place.line, "column": place.end_column or place.column}
    return {
        "description": f"{finding.code}: {finding.message}",
        "check_name": finding.code,
        "fingerprint": mark,
        "severity": LEVELS[finding.severity],
        "location": {"path": relative(place.file), "positions": {"begin": begin, "end": end}},
    }
