"""``check`` and ``rule`` from outside: exit codes, streams, flags."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BAD = "class A(nn.Module):\n    def forward(self, q, cache):\n        return torch.softmax(q @ q, -1) @ q\n"
ROOT = Path(__file__).parents[2]


def hfspeed(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "hfspeed", *arguments],
        capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **path, **environment},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "good.py").write_text("x = 1\n")
    return tmp_path


def test_findings_are_1_and_told_on_standard_output(folder: Path) -> None:
    run = hfspeed("check", "--static", ".", cwd=folder)
    assert run.returncode == 1
    assert run.stdout.startswith("bad.py:3:16: HFS101 `A` computes attention by hand, with `torch.softmax`\n")
    assert "\x1b" not in run.stdout
    assert run.stderr == "hfspeed: 1 warning\n"


def test_nothing_found_is_0(folder: Path) -> None:
    run = hfspeed("check", "--static", "good.py", cwd=folder)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "hfspeed: nothing found\n")
    assert hfspeed("check", "--static", "--exit-zero", "bad.py", cwd=folder).returncode == 0
    assert hfspeed("check", "--static", "--ignore", "HFS1,HFS2", "bad.py", cwd=folder).returncode == 0
    assert hfspeed("check", "--static", "--select", "HFS2", "bad.py", cwd=folder).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "nowhere.py does not exist"),
        (["./nowhere"], "nowhere does not exist"),
        (["--static", "some-model"], "some-model does not exist"),
        (["--output-format", "xml", "."], "choose one of full, concise, json, github"),
        (["--select", "HFX", "."], "no rule is called 'HFX'"),
        ([], "Missing argument"),
    ],
)
def test_a_wrong_request_is_2(arguments: list[str], words: str, folder: Path) -> None:
    run = hfspeed("check", *arguments, cwd=folder)
    assert run.returncode == 2
    assert words in run.stderr
    assert "Traceback" not in run.stderr


def test_a_file_that_does_not_parse_is_a_finding(folder: Path) -> None:
    (folder / "broken.py").write_text("def f(:\n")
    run = hfspeed("check", "--output-format", "concise", "broken.py", cwd=folder)
    assert run.returncode == 1
    assert run.stdout == "broken.py:1:7: HFS001 the file cannot be read: invalid syntax\n"


def test_json_is_alone_on_standard_output(folder: Path) -> None:
    run = hfspeed("check", "--static", "--output-format", "json", ".", cwd=folder, FORCE_COLOR="1")
    assert json.loads(run.stdout)["findings"][0]["code"] == "HFS101"


def test_long_lines_are_not_wrapped(folder: Path) -> None:
    long = folder / ("deep" * 40)
    long.mkdir()
    (long / "bad.py").write_text(BAD)
    run = hfspeed("check", "--static", "--output-format", "concise", str(long), COLUMNS="40")
    assert len(run.stdout.splitlines()) == 1


def test_colour_is_forced_and_refused(folder: Path) -> None:
    arguments = ("check", "--static", "bad.py")
    assert "\x1b[" in hfspeed(*arguments, cwd=folder, FORCE_COLOR="1").stdout
    assert "\x1b[3" not in hfspeed(*arguments, cwd=folder, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_without_torch_it_reads_and_says_so(folder: Path) -> None:
    program = """
import sys
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
from hfspeed.cli.app import main
main(["check", "good.py"])
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0
    told = r'only read, not planned: torch( and transformers)? not installed; run: pip install "hfspeed\[torch\]"'
    assert re.search(told, run.stderr)


def test_the_examples_are_clean() -> None:
    run = hfspeed("check", "--static", "examples")
    assert (run.returncode, run.stdout) == (0, "")


@pytest.mark.slow
def test_the_examples_are_clean_when_planned() -> None:
    pytest.importorskip("transformers")
    run = hfspeed("check", "--trust-remote-code", "examples")
    assert (run.returncode, run.stdout) == (0, "")


def test_rule_explains_by_code_and_name() -> None:
    by_code, by_name = hfspeed("rule", "HFS101"), hfspeed("rule", "attention-by-hand")
    assert by_code.returncode == 0
    assert by_code.stdout == by_name.stdout
    for word in ("HFS101 attention-by-hand (warning)", "cost: ", "help: ", "Found:", "Use instead:"):
        assert word in by_code.stdout
    assert "# HFS101" not in by_code.stdout


def test_rule_lists_all_and_speaks_json() -> None:
    assert "HFS701" in hfspeed("rule", "--all").stdout
    every = json.loads(hfspeed("rule", "--all", "--output-format", "json").stdout)
    assert {"code", "name", "rationale", "bad", "good"} <= set(every[0])
    assert json.loads(hfspeed("rule", "hfs001", "--output-format", "json").stdout)["name"] == "file-not-readable"


def test_an_unknown_rule_is_2() -> None:
    run = hfspeed("rule", "HFS10")
    assert run.returncode == 2
    assert "did you mean" in run.stderr
    assert hfspeed("rule").returncode == 2
