"""Findings as JSON, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps

from rich.text import Text

from hfspeed.lint.finding import Finding, Fix
from hfspeed.refusal import Place

SCHEMA_VERSION = 1


def json(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """One object with ``schema_version`` and ``findings``; lines and columns count from 1."""
    return Text(dumps({"schema_version": SCHEMA_VERSION, "findings": [_object(one) for one in findings]}, indent=2))


def _object(finding: Finding) -> dict[str, object]:
    place = finding.place
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
        "cost": finding.cost,
        "help": finding.help,
        "url": finding.url,
        "filename": place.file,
        **_span(place),
        "fix": _fix(finding),
    }


def _fix(finding: Finding) -> dict[str, object] | None:
    """What mends it; an edit names its file when that is another one."""
    if finding.fix is Fix.NONE:
        return None
    edits = [{"filename": edit.place.file, **_span(edit.place), "content": edit.text} for edit in finding.edits]
    return {"applicability": str(finding.fix), "message": finding.help, "edits": edits}


def _span(place: Place) -> dict[str, object]:
    end = {"row": place.end_line or place.line, "column": place.end_column or place.column}
    return {"location": {"row": place.line, "column": place.column}, "end_location": end}
