"""``plan --check``, ``--diff`` and ``--write``: what they print, what they write, and their exit codes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hfspeed.cli.app import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "plain", tmp_path / "plain")
    return tmp_path / "plain"


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(["plan", *arguments, "--trust-remote-code"])
    out, err = capsys.readouterr()
    return int(left.value.code or 0), out, err


def test_missing_plans_are_found_shown_written_and_then_right(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    before = file.read_text("utf-8")
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert f"{file}:" in out
    assert "there is no base_model_tp_plan" in out
    code, out, _ = run(capsys, str(folder), "--diff")
    assert code == 0
    assert '+        "blocks.*.mixer.wo": "rowwise",' in out
    assert file.read_text("utf-8") == before
    code, out, err = run(capsys, str(folder), "--write")
    assert (code, out) == (0, "")
    assert f"wrote {file}" in err
    assert '"blocks.*.mixer.wo": "rowwise"' in file.read_text("utf-8")
    code, out, err = run(capsys, str(folder), "--check")
    assert (code, out) == (0, "")
    assert "the declared plans are right" in err
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0
    assert f"{file} is up to date" in err


def test_two_requests_at_once_are_refused(capsys) -> None:
    code, _, err = run(capsys, "x", "--check", "--write")
    assert code == 2
    assert "give one of them" in err


def test_a_file_keeps_its_ends_of_lines_and_its_mark(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    file.chmod(0o640)
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0, err
    after = file.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf")
    assert b'"blocks.*.mixer.wo": "rowwise",\r\n' in after
    assert after.count(b"\n") == after.count(b"\r\n")
    assert file.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in folder.iterdir() if one.name.startswith(".")] == []


BEHIND = '\nPlainConfig.base_model_tp_plan = {"blocks.*.mixer.wo": "colwise"}\n'
INSIDE = """
    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.base_model_tp_plan = {}
"""


@pytest.mark.parametrize("inside", [False, True], ids=["behind the class", "in the constructor"])
def test_nothing_is_written_that_other_code_overrides(folder: Path, capsys, inside: bool) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    last = "    tie_word_embeddings: bool = False\n"
    text = text.replace(last, last + INSIDE) if inside else text + BEHIND
    file.write_text(text, "utf-8")
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "base_model_tp_plan" in one)
    code, out, err = run(capsys, str(folder), "--write")
    assert (code, out) == (2, "")
    told = " ".join(err.split())
    assert f"configuration_plain.py:{line}" in told.replace(" ", "")
    assert "sets base_model_tp_plan and says otherwise" in told
    assert file.read_text("utf-8") == text


def test_entries_that_stay_although_they_match_nothing_are_told(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    first = '    model_type = "plain"\n'
    file.write_text(text.replace(first, first + '    base_model_tp_plan = {"blocks.*.other": "colwise"}\n'), "utf-8")
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 0, err
    told = " ".join(err.split())
    assert "left: `blocks.*.other` in base_model_tp_plan matches no module of this configuration" in told
    code, out, _ = run(capsys, str(folder), "--check")
    assert code == 1
    assert out.count("\n") == 1
    assert "`blocks.*.other` in base_model_tp_plan matches no module" in out


def test_a_link_to_elsewhere_is_not_written(folder: Path, tmp_path: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    code, _, err = run(capsys, str(folder), "--write")
    assert code == 2
    assert "is a symbolic link to" in " ".join(err.split())
    assert "installed package" not in err
    assert elsewhere.read_bytes() == before


def test_training_proves_the_plan_that_is_declared_as_well(folder: Path, capsys) -> None:
    file = folder / "configuration_plain.py"
    text = file.read_text("utf-8")
    first = '    model_type = "plain"\n'
    wrong = '    base_model_tp_plan = {"blocks.*.mixer.wq": "colwise", "blocks.*.mixer.wo": "colwise"}\n'
    file.write_text(text.replace(first, first + wrong), "utf-8")
    with pytest.raises(SystemExit) as left:
        main(["verify", str(folder), "--trust-remote-code", "--train", "--tp", "2", "--pp", "1"])
    out = capsys.readouterr().out
    assert left.value.code == 1
    assert "equal: tp plan found in code, 2 ranks: " in out
    assert "unequal: tp plan declared, 2 ranks: " in out
    assert "`hfspeed plan --check` says where" in out
