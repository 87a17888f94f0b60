"""The formats that services read, letter by letter and against their schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from hfspeed.lint.finding import Edit, Finding, Fix, Severity
from hfspeed.lint.report import report
from hfspeed.refusal import Place

# An excerpt of the public schema, written out by hand: what is required, and what may not be there.
COUNT = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
REGION = {
    "type": "object", "additionalProperties": False, "required": ["startLine"],
    "properties": {end + part: COUNT for end in ("start", "end") for part in ("Line", "Column")},
}  # fmt: skip
TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}, "markdown": {"type": "string"}},
}
ARTIFACT = {
    "type": "object", "additionalProperties": False,
    "properties": {"uri": {"type": "string", "format": "uri-reference"}, "uriBaseId": {"type": "string"}},
}  # fmt: skip
LOCATION = {
    "type": "object", "additionalProperties": False, "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object", "additionalProperties": False, "required": ["artifactLocation", "region"],
            "properties": {"artifactLocation": ARTIFACT, "region": REGION},
        }
    },
}  # fmt: skip
FIXES = {
    "type": "object", "additionalProperties": False, "required": ["artifactChanges"],
    "properties": {
        "description": TEXT,
        "artifactChanges": {
            "type": "array", "minItems": 1,
            "items": {
                "type": "object", "additionalProperties": False, "required": ["artifactLocation", "replacements"],
                "properties": {
                    "artifactLocation": ARTIFACT,
                    "replacements": {
                        "type": "array", "minItems": 1,
                        "items": {
                            "type": "object", "additionalProperties": False, "required": ["deletedRegion"],
                            "properties": {"deletedRegion": REGION, "insertedContent": TEXT},
                        },
                    },
                },
            },
        },
    },
}  # fmt: skip
RESULT = {
    "type": "object", "additionalProperties": False, "required": ["message"],
    "properties": {
        "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": -1},
        "level": LEVEL, "message": TEXT,
        "locations": {"type": "array", "items": LOCATION},
        "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
        "fixes": {"type": "array", "items": FIXES},
    },
}  # fmt: skip
RULE = {
    "type": "object", "additionalProperties": False, "required": ["id"],
    "properties": {
        "id": {"type": "string"}, "name": {"type": "string"}, "shortDescription": TEXT, "fullDescription": TEXT,
        "helpUri": {"type": "string", "format": "uri"}, "help": TEXT,
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}},
        "properties": {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}},
    },
}  # fmt: skip
RUN = {
    "type": "object", "additionalProperties": False, "required": ["tool"],
    "properties": {
        "tool": {
            "type": "object", "additionalProperties": False, "required": ["driver"],
            "properties": {
                "driver": {
                    "type": "object", "additionalProperties": False, "required": ["name"],
                    "properties": {
                        "name": {"type": "string"}, "informationUri": {"type": "string", "format": "uri"},
                        "rules": {"type": "array", "uniqueItems": True, "items": RULE},
                    },
                }
            },
        },
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "originalUriBaseIds": {"type": "object"},
        "results": {"type": "array", "items": RESULT},
    },
}  # fmt: skip
SARIF = {
    "type": "object", "additionalProperties": False, "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"}, "version": {"enum": ["2.1.0"]},
        "runs": {"type": "array", "items": RUN},
    },
}  # fmt: skip


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text("a = 1\nb = call(x)\nb = call(x)\n")
    edit = Edit(Place("m.py", 1, 1, 2, 1), "")
    one = Finding("HFS101", "one", Severity.ERROR, "`b` is <wrong>", "all of it", "mend it", Place("m.py", 2, 5, 2, 12))
    return [
        one,
        Finding(*(one.code, one.name, one.severity, one.message, one.cost, one.help), Place("m.py", 3, 5, 3, 12)),
        Finding(
            "HFS902", "two", Severity.WARNING, "slow", "", "away", Place(str(tmp_path / "a b.py"), 1), Fix.SAFE, (edit,)
        ),
    ]


def test_gitlab(findings: list[Finding]) -> None:
    first, second, third = json.loads(report("gitlab")(findings, []).plain)
    assert {**first, "fingerprint": ""} == {
        "description": "HFS101: `b` is <wrong>", "check_name": "HFS101", "fingerprint": "", "severity": "critical",
        "location": {
            "path": "m.py",
            "positions": {"begin": {"line": 2, "column": 5}, "end": {"line": 2, "column": 12}},
        },
    }  # fmt: skip
    assert third["location"]["path"] == "a b.py"
    assert len({one["fingerprint"] for one in (first, second, third)}) == 3
    Path("m.py").write_text("\n\na = 1\nb = call(x)\n")
    moved = Finding(*list(vars(findings[0]).values())[:6], Place("m.py", 4, 5, 4, 12))
    assert json.loads(report("gitlab")([moved], []).plain)[0]["fingerprint"] == first["fingerprint"]
    assert json.loads(report("gitlab")([], []).plain) == []


def test_junit(findings: list[Finding]) -> None:
    text = report("junit")([findings[0]], ["m.py", "clean.py"]).plain
    assert (
        text
        == """\
<?xml version="1.0" encoding="utf-8"?>
<testsuites name="hfspeed" tests="2" failures="1" errors="0">
  <testsuite name="clean.py" tests="1" failures="0" errors="0">
    <testcase name="hfspeed" classname="clean.py" />
  </testsuite>
  <testsuite name="m.py" tests="1" failures="1" errors="0">
    <testcase name="HFS101 2:5" classname="m.py" file="m.py" line="2" column="5">
      <failure message="`b` is &lt;wrong&gt;" type="error">m.py:2:5-2:12: HFS101 `b` is &lt;wrong&gt;
cost: all of it
help: mend it
https://hfspeed.readthedocs.io/en/stable/rules/HFS101/</failure>
    </testcase>
  </testsuite>
</testsuites>"""
    )
    odd = Finding("HFS001", "x", Severity.ERROR, "a\x00\x1bb", "", "", Place("m.py", 1))
    assert ET.fromstring(report("junit")([odd], []).plain).get("failures") == "1"


def test_sarif(findings: list[Finding]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    told = json.loads(report("sarif")(findings, ["m.py"]).plain)
    for log in (told, json.loads(report("sarif")([], []).plain)):
        jsonschema.validate(log, SARIF, format_checker=jsonschema.FormatChecker())
    (run,) = told["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["HFS101", "HFS902"]
    first, second, third = run["results"]
    assert first == {
        "ruleId": "HFS101", "ruleIndex": 0, "level": "error", "message": {"text": "`b` is <wrong>\nall of it\nmend it"},
        "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "m.py", "uriBaseId": "SRCROOT"},
            "region": {"startLine": 2, "startColumn": 5, "endLine": 2, "endColumn": 12},
        }}],
        "partialFingerprints": first["partialFingerprints"],
    }  # fmt: skip
    assert first["partialFingerprints"] != second["partialFingerprints"]
    assert third["ruleIndex"] == 1
    assert _uri(third) == "a%20b.py"
    (change,) = third["fixes"][0]["artifactChanges"]
    region = {"startLine": 1, "startColumn": 1, "endLine": 2, "endColumn": 1}
    assert change["replacements"] == [{"deletedRegion": region, "insertedContent": {"text": ""}}]


def _uri(result: dict[str, Any]) -> str:
    return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])


def test_statistics(findings: list[Finding]) -> None:
    assert report("statistics")(findings, []).plain == "2  HFS101  [ ]  one\n1  HFS902  [*]  two"
    assert report("statistics")([], []).plain == ""
