"""Each format, letter by letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfspeed.lint.finding import DOCS, Edit, Finding, Fix, Severity
from hfspeed.lint.report import report
from hfspeed.refusal import Place

EDIT = Edit(Place("m.py", 3, 1, 4, 1), "c = 2\n")


@pytest.fixture
def findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    monkeypatch.chdir(tmp_path)
    Path("m.py").write_text("a = 1\n\tb = call(x)  # é\nc = (\n    2)\n", "utf-8")
    return [
        Finding("HFS101", "one", Severity.ERROR, "`b` is wrong", "all of it", "mend it", Place("m.py", 2, 6, 2, 13)),
        Finding(
            "HFS205", "two", Severity.WARNING, "100% slow", "", "a\nb", Place("m.py", 3, 5, 4, 7), Fix.SAFE, (EDIT,)
        ),
        Finding("HFS215", "three", Severity.INFO, "no line", "", "", Place("gone.py", 9)),
    ]


def test_full(findings: list[Finding]) -> None:
    assert (
        report("full")(findings, []).plain
        == """\
m.py:2:6: HFS101 `b` is wrong
  |
2 |     b = call(x)  # é
  |         ^^^^^^^
    cost: all of it
    help: mend it

m.py:3:5: HFS205 100% slow
  |
3 | c = (
  |     ^
    help: a
b

gone.py:9:1: HFS215 no line"""
    )


def test_concise(findings: list[Finding]) -> None:
    assert report("concise")(findings, []).plain.splitlines() == [
        "m.py:2:6: HFS101 `b` is wrong", "m.py:3:5: HFS205 100% slow", "gone.py:9:1: HFS215 no line",
    ]  # fmt: skip


def test_json(findings: list[Finding]) -> None:
    told = json.loads(report("json")(findings, []).plain)
    assert told["schema_version"] == 1
    assert told["findings"][0] == {
        "code": "HFS101", "name": "one", "severity": "error", "message": "`b` is wrong", "cost": "all of it",
        "help": "mend it", "filename": "m.py", "location": {"row": 2, "column": 6},
        "end_location": {"row": 2, "column": 13}, "fix": None, "url": f"{DOCS}/HFS101/",
    }  # fmt: skip
    edit = {"filename": "m.py", "location": {"row": 3, "column": 1}, "end_location": {"row": 4, "column": 1}}
    assert told["findings"][1]["fix"] == {
        "applicability": "safe", "message": "a\nb", "edits": [{**edit, "content": "c = 2\n"}]
    }  # fmt: skip
    assert told["findings"][2]["end_location"] == {"row": 9, "column": 1}
    assert json.loads(report("json")([], []).plain)["findings"] == []


def test_github(findings: list[Finding]) -> None:
    assert report("github")(findings, []).plain.splitlines() == [
        "::error file=m.py,line=2,col=6,endLine=2,endColumn=13,title=hfspeed (HFS101)::`b` is wrong; help: mend it",
        "::warning file=m.py,line=3,col=5,endLine=4,endColumn=7,title=hfspeed (HFS205)::100%25 slow; help: a%0Ab",
        "::notice file=gone.py,line=9,col=1,title=hfspeed (HFS215)::no line",
    ]


def test_nothing_is_told_of_nothing() -> None:
    assert [report(name)([], []).plain for name in ("full", "concise", "github")] == ["", "", ""]
