"""What has to be true of the linter on any file: it ends with 0 or 1, places lie in the text, fixes come out right."""

from __future__ import annotations

import ast
import json
import random
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import mutations
import seeds

from hfspeed.cli.app import main
from hfspeed.lint.config import Configuration
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import read
from hfspeed.lint.finding import Finding
from hfspeed.lint.report import FORMATS, report
from hfspeed.lint.run import Request, run

EVERYTHING = {"preview": True, "unsafe-fixes": True}
COMMAND = 100  # one in so many goes through the command itself


@dataclass
class Judge:
    """Makes files by number and judges what is said of them; ``counts`` is what came of it."""

    folder: Path
    texts: seeds.Seeds = field(default_factory=seeds.Seeds)
    counts: dict[str, int] = field(default_factory=dict)

    def made(self, number: int) -> tuple[Path, bytes]:
        """The file of a number, written, with its neighbours; always the same one."""
        chance = random.Random(number)
        seed = self.texts.one(chance)
        for file in self.folder.iterdir():
            file.unlink()
        content = mutations.mutated(seed.text, chance)
        if seed.config is not None and chance.random() < 0.8:
            config = mutations.mutated(seed.config, chance) if chance.random() < 0.2 else seed.config.encode()
            (self.folder / "config.json").write_bytes(config)
        file = self.folder / "modeling_x.py"
        file.write_bytes(content)
        return file, content

    def judge(self, number: int) -> None:
        """All that is asked of one file.

        Raises:
            AssertionError: it is not so.
        """
        file, content = self.made(number)
        name = sorted(FORMATS)[number % len(FORMATS)]
        outcome = run(self._request(file, fix=False))
        told = report(name)(outcome.findings, outcome.files).plain
        if name in ("json", "gitlab", "sarif"):
            json.loads(told)
        unreadable = any(one.code == "HFS001" for one in outcome.findings)
        assert not unreadable or len(outcome.findings) == 1
        if not unreadable:
            _placed(outcome.findings, file)
        assert file.read_bytes() == content, "a file was written that nobody asked to be"
        self.count("unreadable" if unreadable else "with findings" if outcome.findings else "clean")
        if any(one.edits for one in outcome.findings):
            self._mended(file)
        if number % COMMAND == 0:
            self._command(file)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def _request(self, file: Path, *, fix: bool) -> Request:
        return Request((str(file),), Configuration(EVERYTHING, isolated=True), fix=fix, write=fix)

    def _mended(self, file: Path) -> None:
        """Made, written and made again: the text parses, nothing is left over, and nothing is left to mend."""
        before = {one.name for one in self.folder.iterdir()}
        outcome = run(self._request(file, fix=True))
        assert outcome.defects == []
        assert {one.name for one in self.folder.iterdir()} - before <= {"hints.py", "hfspeed_hints.py"}
        after = {one: one.read_bytes() for one in self.folder.iterdir()}
        ast.parse(Disk().text(file))
        again = run(self._request(file, fix=True))
        assert [one.code for one in again.mended] == []
        assert {one: one.read_bytes() for one in self.folder.iterdir()} == after
        self.count("mended" if outcome.mended else "not to be mended")

    def _command(self, file: Path) -> None:
        said, complained = StringIO(), StringIO()
        code: object = None
        try:
            with redirect_stdout(said), redirect_stderr(complained):
                main(["check", "--static", "--isolated", "--no-cache", str(file)])
        except SystemExit as end:
            code = end.code
        assert code in (0, 1), f"exit code {code}: {complained.getvalue()}"
        self.count("through the command")


def _placed(findings: list[Finding], file: Path) -> None:
    facts = read(file)
    assert not isinstance(facts, Finding)
    for finding in findings:
        for place in (finding.place, *(edit.place for edit in finding.edits)):
            if Path(place.file) != file:
                continue
            start, end = (place.line, place.column), (place.end_line or 0, place.end_column or 0)
            assert start <= end, (finding.code, place)
            for line, column in (start, end):
                lines = [*facts.lines, ""]  # an edit may take the last line's end
                assert 1 <= line <= len(lines), (finding.code, place)
                assert 1 <= column <= len(lines[line - 1]) + 1, (finding.code, place)
