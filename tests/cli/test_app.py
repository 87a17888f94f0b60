"""The command line's exit codes and messages, seen from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hfspeed.cli.app import COMMANDS, main
from hfspeed.errors import RefusedError, UsageError
from hfspeed.refusal import Place, Reason, Refusal


def hfspeed(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hfspeed", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1", **environment},
    )  # fmt: skip


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, does: Any) -> None:
    module = ModuleType(f"hfspeed.cli.{name}")
    setattr(module, name, does)
    monkeypatch.setitem(sys.modules, f"hfspeed.cli.{name}", module)


def outcome(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    return left.value.code if isinstance(left.value.code, int) else 0


def test_help_lists_every_command_and_has_no_colour() -> None:
    run = hfspeed("--help")
    assert run.returncode == 0
    assert all(f" {name} " in run.stdout for name in COMMANDS)
    assert "\x1b" not in run.stdout


def test_version_and_wrong_usage() -> None:
    assert hfspeed("--version").stdout.startswith("hfspeed ")
    assert hfspeed().returncode == 2
    wrong = hfspeed("chekc")
    assert wrong.returncode == 2
    assert "check" in wrong.stderr


def test_asking_for_help_imports_nothing_heavy() -> None:
    program = """
import sys
from hfspeed.cli.app import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
heavy = {"torch", "transformers", "vllm"} & set(sys.modules)
assert not heavy, heavy
"""
    for arguments in (["--help"], ["hints"], ["rule", "--help"], ["check", "--help"], ["serve", "--help"]):
        run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr


def test_an_error_is_a_message_and_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def plan() -> None:
        raise UsageError("`x` is not a folder; name one")

    stand_in(monkeypatch, "plan", plan)
    assert outcome("plan") == 2
    assert capsys.readouterr() == ("", "hfspeed: `x` is not a folder; name one\n")
    monkeypatch.setenv("HFSPEED_DEBUG", "1")
    with pytest.raises(UsageError):
        main(["plan"])


def test_refusals_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def plan() -> None:
        raise RefusedError("M", (Refusal("attention", Reason.NO_INTERFACE, "softmax by hand", "A", Place("m.py", 3)),))

    stand_in(monkeypatch, "plan", plan)
    assert outcome("plan") == 2
    assert "m.py:3:1: attention in A: softmax by hand (no-interface)" in capsys.readouterr().err


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def plan() -> None:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    stand_in(monkeypatch, "plan", plan)
    assert outcome("plan") == 2
    assert 'pip install "hfspeed[torch]"' in capsys.readouterr().err


def test_a_defect_shows_its_traceback_and_is_2() -> None:
    program = """
import sys
from types import ModuleType
from hfspeed.cli.app import main
module = sys.modules["hfspeed.cli.plan"] = ModuleType("plan")
def plan() -> None:
    raise RuntimeError("broken")
module.plan = plan
main(["plan"])
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "RuntimeError: broken" in run.stderr
    assert "Traceback" in run.stderr


def test_hints_lists_and_vendors(tmp_path: Path) -> None:
    assert "@attention(query, key, value, output)" in hfspeed("hints").stdout
    run = hfspeed("hints", "--vendor", str(tmp_path))
    assert (run.returncode, run.stdout.strip()) == (0, str(tmp_path / "hfspeed_hints.py"))
    (tmp_path / "hfspeed_hints.py").write_text("mine = 1\n")
    run = hfspeed("hints", "--vendor", str(tmp_path))
    assert run.returncode == 2
    assert "move it away first" in run.stderr
