"""Findings as workflow commands, which GitHub shows at their lines in a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from hfspeed.lint.finding import Finding, Severity

LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def github(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """One ``::error file=…::`` line per finding."""
    return Text("\n").join(Text(_command(finding)) for finding in findings)


def _command(finding: Finding) -> str:
    place = finding.place
    at = {"file": place.file, "line": place.line, "col": place.column}
    if place.end_line:
        at |= {"endLine": place.end_line, "endColumn": place.end_column or place.column}
    at["title"] = f"hfspeed ({finding.code})"
    properties = ",".join(f"{name}={_escaped(str(value), ':,')}" for name, value in at.items())
    told = "; ".join(part for part in (finding.message, finding.help and f"help: {finding.help}") if part)
    return f"::{LEVELS[finding.severity]} {properties}::{_escaped(told)}"


def _escaped(text: str, more: str = "") -> str:
    for character in "%\r\n" + more:  # the percent sign first
        text = text.replace(character, f"%{ord(character):02X}")
    return text
