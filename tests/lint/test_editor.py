"""What an editor needs: exact places, the page that explains, and edits that do what ``--fix`` does."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from hfspeed.errors import UsageError
from hfspeed.lint.config import Configuration
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, parse, read
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import DOCS, Fix
from hfspeed.lint.mend import mend
from hfspeed.lint.report import report
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import rules
from hfspeed.lint.run import Request, run
from hfspeed.lint.settings import Settings

ROUNDS = 20
READING = [rule for rule in rules() if type(rule).check is not Rule.check and rule.bad.marks()]
MENDING = [rule for rule in rules() if rule.fix is not Fix.NONE]


def laid(rule: Rule, folder: Path) -> Path:
    """The rule's bad example with what lies beside it."""
    for name, text in {**rule.bad.files, rule.bad.path: rule.bad.shown}.items():
        (folder / name).write_text(text, "utf-8")
    return folder / rule.bad.path


def asked(file: Path) -> list[dict[str, Any]]:
    """The findings as another program gets them."""
    outcome = run(Request((str(file),), Configuration(isolated=True)))
    found: list[dict[str, Any]] = json.loads(report("json")(outcome.findings, outcome.files).plain)["findings"]
    return found


def offset(text: str, at: dict[str, int]) -> int:
    """Where a row and a column, which count from 1, are in a text."""
    before = text.split("\n")[: at["row"] - 1]
    return sum(len(line) + 1 for line in before) + at["column"] - 1


def applied(finding: dict[str, Any]) -> None:
    """Make the edits of one finding as an editor does, which knows nothing but the JSON."""
    by_file: dict[str, list[dict[str, Any]]] = {}
    for edit in finding["fix"]["edits"]:
        by_file.setdefault(edit["filename"], []).append(edit)
    for name, edits in by_file.items():
        text = Path(name).read_text("utf-8") if Path(name).exists() else ""
        for edit in sorted(edits, key=lambda one: offset(text, one["location"]), reverse=True):
            start, end = offset(text, edit["location"]), offset(text, edit["end_location"])
            assert 0 <= start <= end <= len(text)
            text = text[:start] + edit["content"] + text[end:]
        Path(name).write_text(text, "utf-8")


def state(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text("utf-8") for file in folder.iterdir()}


@pytest.mark.parametrize("rule", MENDING, ids=lambda rule: rule.code)
def test_the_edits_do_what_the_command_does(rule: Rule, tmp_path: Path) -> None:
    (tmp_path / "editor").mkdir()
    (tmp_path / "command").mkdir()
    file, other = laid(rule, tmp_path / "editor"), laid(rule, tmp_path / "command")
    for _ in range(ROUNDS):
        found = [one for one in asked(file) if one["fix"] is not None]
        if not found:
            break
        applied(found[0])
    disk = Disk()
    assert mend(other, disk, Settings(unsafe_fixes=True)).findings
    disk.write()
    assert state(file.parent) == state(other.parent)


@pytest.mark.parametrize("rule", READING, ids=lambda rule: rule.code)
def test_a_place_is_what_is_spoken_of(rule: Rule, tmp_path: Path) -> None:
    """From the first character of a node to behind its last one; a class or a function is the line that opens it."""
    file = laid(rule, tmp_path)
    facts = read(file)
    assert isinstance(facts, Facts)
    spans = {facts.place(node) for node in ast.walk(facts.tree) if hasattr(node, "lineno")}
    for finding in check(facts):
        assert finding.url == f"{DOCS}/{rule.code}/"
        text = Disk().text(Path(finding.place.file))
        lines = text.split("\n")
        assert finding.place.end_line is not None
        start, end = lines[finding.place.line - 1], lines[finding.place.end_line - 1]
        said = start[finding.place.column - 1 :], end[: (finding.place.end_column or 1) - 1]
        assert said[0].strip() == said[0].rstrip() != ""
        assert said[1].rstrip() == said[1] != ""
        if finding.place.file == str(file):
            assert finding.place in spans


def test_columns_count_characters(tmp_path: Path) -> None:
    text = "class A(nn.Module):\n    def __init__(self):\n        self.é = nn.Linear(1, 1)\n\n"
    text += "    def forward(self, x):\n"
    text += "        return '🙂é', self.é(input=x)\n"
    (one,) = [one for one in check(parse(text, tmp_path / "modeling_é.py")) if one.code == "HFS211"]
    assert (one.place.line, one.place.column, one.place.end_column) == (6, 22, 37)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(one for one in MENDING if one.code == "HFS602")
    file = laid(rule, tmp_path)
    before = file.read_bytes()
    disk = Disk()
    assert mend(file, disk, Settings(unsafe_fixes=True)).findings

    def full(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match=r"cannot be written.*no space left.*as it was"):
        disk.write()
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [file.name]


def test_every_address_is_a_page() -> None:
    """The pages are made when the documentation is built, which fails if one is missing from the site."""
    pytest.importorskip("mkdocs")
    from mkdocs.config import load_config
    from mkdocs.structure.files import Files

    root = Path(__file__).parents[2]
    config = load_config(str(root / "mkdocs.yml"))
    files = config.plugins.on_files(Files([]), config=config)
    pages = {config.site_url + file.url for file in files}
    assert {f"{DOCS}/{rule.code}/" for rule in rules()} <= pages
