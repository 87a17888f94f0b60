"""Files broken on purpose: a few of the many that ``make fuzz`` makes, and some through the command itself."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FILES = 600
THROUGH_COMMAND = 200


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "fuzz"))
    import judging

    (tmp_path / "files").mkdir()
    return judging.Judge(tmp_path / "files")


def test_files_at_random(judge: object) -> None:
    for number in range(FILES):
        judge.judge(number)  # type: ignore[attr-defined]
    counts = judge.counts  # type: ignore[attr-defined]
    assert counts["unreadable"] > FILES / 5
    assert counts["clean"] + counts["with findings"] > FILES / 5
    assert counts["with findings"] > 10
    assert counts["mended"] > 3


@pytest.mark.timeout(600)
def test_through_the_command(judge: object, tmp_path: Path) -> None:
    folder = tmp_path / "batch"
    folder.mkdir()
    for number in range(THROUGH_COMMAND):
        made, content = judge.made(random.Random(number).randrange(10**6))  # type: ignore[attr-defined]
        (folder / f"modeling_{number}.py").write_bytes(content)
        assert made.read_bytes() == content
    for flags in ([], ["--preview", "--fix", "--unsafe-fixes"]):
        start = time.monotonic()
        run = subprocess.run(
            [sys.executable, "-m", "hfspeed", "check", "--static", "--isolated", "--no-cache",
             "--output-format", "json", *flags, str(folder)],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, check=False, timeout=300,
        )  # fmt: skip
        told = f"with {flags}: {run.returncode} after {time.monotonic() - start:.0f} s"
        assert run.returncode in (0, 1), f"{told}\n{run.stderr.decode(errors='replace')[-2000:]}"
        assert b"Traceback" not in run.stderr, told
        assert b"report it" not in run.stderr, told
