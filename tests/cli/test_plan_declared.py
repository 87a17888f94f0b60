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
