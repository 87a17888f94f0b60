"""Files are found, read and never run; what cannot be read is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfspeed.errors import UsageError
from hfspeed.lint.config import Configuration
from hfspeed.lint.discover import files_in
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, read
from hfspeed.lint.finding import Finding
from hfspeed.lint.noqa import add_noqa
from hfspeed.lint.report import FORMATS, report
from hfspeed.lint.run import Request, run
from hfspeed.lint.settings import choose


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"def f(:\n", 1, "invalid syntax"),
        (b"x = 1\nif x:\n", 2, "expected an indented block"),
        (b"x = '\0'\n", 1, "null bytes"),
        (b"# coding: nonsense\n", 1, "nonsense"),
        (b"x = '\xff'\n", 1, "encoding"),
        (b"(" * 1000, 1, ""),
        (b"x = " + b"-" * 100000 + b"1", 1, ""),
    ],
)
def test_what_cannot_be_read_is_a_finding(content: bytes, line: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(content)
    (finding,) = check(read(tmp_path / "m.py"))
    assert (finding.code, finding.place.line) == ("HFS001", line)
    assert words in finding.message


def test_what_is_nested_too_deeply_to_follow_is_a_finding(tmp_path: Path) -> None:
    chain = " + ".join(["q"] * 2500)
    forward = f"    def forward(self, q, cache):\n        return torch.softmax({chain}) @ q\n"
    (tmp_path / "m.py").write_text("class A(nn.Module):\n" + forward)
    (finding,) = check(read(tmp_path / "m.py"))
    assert (finding.code, finding.place.line) == ("HFS001", 1)


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "m.py").touch()
    assert check(read(tmp_path / "m.py")) == []
    assert isinstance(read(tmp_path / "nowhere.py"), Finding)


def test_reading_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n")
    assert check(read(tmp_path / "m.py")) == []
    assert not (tmp_path / "ran").exists()


def test_columns_count_characters(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(
        "class A(nn.Module):\n    def forward(self, q, cache):\n        é = 'ü'; return torch.softmax(q @ q, -1) @ q\n",
        "utf-8",
    )
    (finding,) = check(read(tmp_path / "m.py"))
    assert (finding.place.line, finding.place.column, finding.place.end_column) == (3, 25, 49)


def test_folders_are_walked_without_what_is_installed_or_hidden(tmp_path: Path) -> None:
    for name in ("b.py", "a/c.py", ".git/d.py", "env/pyvenv.cfg", "env/e.py", "a/__pycache__/f.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files_in(tmp_path) == [tmp_path / "a/c.py", tmp_path / "b.py"]
    assert files_in(tmp_path / "notes.txt") == [tmp_path / "notes.txt"]
    with pytest.raises(UsageError, match="does not exist"):
        files_in(tmp_path / "nowhere")


def test_rules_are_chosen_by_code_prefix_and_name() -> None:
    assert [rule.code for rule in choose(["HFS10"], ["HFS103"])][:3] == ["HFS101", "HFS102", "HFS104"]
    assert [rule.code for rule in choose(["attention-by-hand", "hfs701"])] == ["HFS101", "HFS701"]
    assert choose(["ALL"], ["all"]) == []
    with pytest.raises(UsageError, match="no rule is called 'HFX'"):
        choose([], ["HFX"])


@pytest.mark.parametrize("encoding", ["rot13", "hex", "utf-16", "utf-32", "utf-7", "cp65001", "no-such-thing", "idna"])
@pytest.mark.parametrize("name", FORMATS)
def test_an_encoding_that_a_file_is_not_in_is_told(encoding: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "modeling_x.py"
    file.write_bytes(f"# -*- coding: {encoding} -*-\nx = '\xe9'\n".encode("latin-1"))
    outcome = run(Request((str(file),), Configuration(isolated=True)))
    assert [one.code for one in outcome.findings] == ["HFS001"]
    assert report(name)(outcome.findings, outcome.files).plain
    assert add_noqa(outcome.findings, Disk()) == outcome.findings


def test_a_chain_of_very_many_classes_is_no_hang(tmp_path: Path) -> None:
    forward = "    def forward(self, x):\n        return self.a(x)\n\n"
    text = "".join(f"class A{n}(A{n + 1}):\n{forward}" for n in range(1500))
    file = tmp_path / "modeling_x.py"
    file.write_text(text + "class A1500(A0):\n    pass\n")
    assert check(read(file)) == []
