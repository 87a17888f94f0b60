"""The typed file is accepted by every checker that is installed, with no unused ignore."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

TYPED = Path(__file__).with_name("hints_are_exactly_typed.py")
ROOT = TYPED.parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["mypy", "--strict", "--follow-imports=silent", f"--cache-dir={os.devnull}"],
        ["pyright", "--warnings"],
    ],
    ids=["mypy", "pyright"],
)
def test_the_typed_file_is_accepted(command: list[str], tmp_path: Path) -> None:
    if importlib.util.find_spec(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    run = subprocess.run(
        [sys.executable, "-m", *command, str(TYPED)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    if command[0] == "pyright" and "nodeenv" in run.stderr + run.stdout:
        pytest.skip("pyright found no node")
    assert run.returncode == 0, run.stdout + run.stderr
