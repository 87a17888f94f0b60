"""Findings as JSON, for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from json import dumps

from rich.text import Text

from hfspeed.lint.finding import Finding

SCHEMA_VERSION = 1


def json(findings: Sequence[Finding]) -> Text:
    """One object with ``schema_version`` and ``findings``; lines and columns count from 1."""
    return Text(dumps({"schema_version": SCHEMA_VERSION, "findings": [_object(one) for one in findings]}, indent=2))


def _object(finding: Finding) -> dict[str, object]:
    place = finding.place
    end = {"row": place.end_line, "column": place.end_column} if place.end_line else None
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": str(finding.severity),
        "message": finding.message,
        "cost": finding.cost,
        "help": finding.help,
        "filename": place.file,
        "location": {"row": place.line, "column": place.column},
        "end_location": end,
    }
