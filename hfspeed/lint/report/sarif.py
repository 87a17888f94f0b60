"""Findings as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.text import Text

from hfspeed.lint.finding import DOCS, Edit, Finding, Fix, Severity
from hfspeed.lint.report.fingerprint import fingerprints, relative
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import rules
from hfspeed.refusal import Place

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """One run with the rules that were found and a result per finding."""
    used = [rule for rule in rules() if rule.code in {finding.code for finding in findings}]
    index = {rule.code: number for number, rule in enumerate(used)}
    marks = zip(findings, fingerprints(findings), strict=True)
    driver = {"name": "hfspeed", "informationUri": f"{DOCS}/", "rules": [_rule(rule) for rule in used]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder that was checked from"}}},
        "results": [_result(finding, index[finding.code], mark) for finding, mark in marks],
    }
    return Text(dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2))


def _rule(rule: Rule) -> dict[str, Any]:
    why = " ".join((inspect.getdoc(type(rule)) or "").split())
    title = (inspect.getdoc(inspect.getmodule(type(rule))) or rule.name).splitlines()[0]
    return {
        "id": rule.code,
        "name": type(rule).__name__,
        "shortDescription": {"text": title},
        "fullDescription": {"text": why},
        "helpUri": f"{DOCS}/{rule.code}/",
        "help": {"text": why, "markdown": f"{why}\n\n```python\n{rule.good.shown}```"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [type(rule).__module__.split(".")[-2]], "fix": str(rule.fix)},
    }


def _result(finding: Finding, index: int, mark: str) -> dict[str, Any]:
    said = "\n".join(text for text in (finding.message, finding.cost, finding.help) if text)
    location = {"artifactLocation": _artifact(finding.place.file), "region": _region(finding.place)}
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": said},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"primaryLocationLineHash": mark},
    }
    if finding.fix is not Fix.NONE:
        result["fixes"] = [{"description": {"text": finding.help}, "artifactChanges": _changes(finding.edits)}]
    return result


def _changes(edits: Sequence[Edit]) -> list[dict[str, Any]]:
    by_file: dict[str, list[dict[str, Any]]] = {}
    for edit in edits:
        replacement = {"deletedRegion": _region(edit.place), "insertedContent": {"text": edit.text}}
        by_file.setdefault(edit.place.file, []).append(replacement)
    return [{"artifactLocation": _artifact(file), "replacements": done} for file, done in by_file.items()]


def _artifact(file: str) -> dict[str, str]:
    told = relative(file)
    outside = {} if Path(told).is_absolute() else {"uriBaseId": "SRCROOT"}
    return {"uri": quote(Path(told).as_uri() if not outside else told, safe="/:%"), **outside}


def _region(place: Place) -> dict[str, int]:
    end = {"endLine": place.end_line, "endColumn": place.end_column or place.column} if place.end_line else {}
    return {"startLine": place.line, "startColumn": place.column, **end}
