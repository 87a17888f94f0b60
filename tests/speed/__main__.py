"""How long the linter takes over what ships with transformers: ``make speed``, on a machine that does nothing else.

Wall-clock seconds and the most memory that one process held. The exit status is 1 where a limit is passed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEMORY = 2048
LIMITS = {
    "every file, cold": 20.0, "every file, warm": 2.0, "one file of 1,000 lines, cold": 0.5, "a family, planned": 10.0,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="make speed", description=__doc__)
    parser.add_argument("only", nargs="*", help="beginnings of what to measure; all by default")
    only = tuple(parser.parse_args().only) or ("",)
    spec = find_spec("transformers")
    assert spec is not None
    assert spec.origin is not None
    models = Path(spec.origin).parent / "models"
    slow = 0
    print(f"{'':32}{'s':>8}{'limit':>8}{'MiB':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one = _thousand(models / "llama" / "modeling_llama.py", folder)
        commands = {
            "every file, cold": ["--static", "--statistics", *_every(models)],
            "every file, warm": ["--static", "--statistics", *_every(models)],
            "one file of 1,000 lines, cold": ["--static", "--no-cache", str(one)],
            "a family, planned": ["--no-cache", "llama"],
        }
        for what, arguments in commands.items():
            if what.startswith(only):
                seconds, peak = min(_run(arguments, folder) for _ in range(3 if "one file" in what else 1))
                wrong = seconds > LIMITS[what] or peak > MEMORY
                slow += wrong
                print(f"{what:32}{seconds:8.2f}{LIMITS[what]:8.1f}{peak:8}{'  TOO MUCH' if wrong else ''}", flush=True)
    return int(bool(slow))


def _every(models: Path) -> list[str]:
    return [str(folder) for folder in sorted(models.iterdir()) if folder.is_dir() and folder.name != "__pycache__"]


def _thousand(file: Path, folder: Path) -> Path:
    """A file of a thousand lines: the classes of one, twice over by other names."""
    lines = file.read_text("utf-8").split("\n")
    again = [line.replace("class Llama", "class Other") for line in lines if not line.startswith("from ")]
    one = folder / "modeling_one.py"
    one.write_text("\n".join([*lines, *again][:1000]) + "\n", "utf-8")
    return one


def _run(arguments: list[str], folder: Path) -> tuple[float, int]:
    """Seconds from start to end, and the most memory of the command or one of its children, in MiB."""
    begun = time.perf_counter()
    with (folder / "said").open("w+b") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "hfspeed", "check", *arguments],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=said, stderr=said,
        )  # fmt: skip
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begun
        said.seek(0)
        told = said.read().decode(errors="replace")
    assert os.waitstatus_to_exitcode(status) in (0, 1), told
    assert "HFS1" in told or len(arguments) < 10, "nothing was found, so nothing was read"
    return seconds, usage.ru_maxrss // 1024


if __name__ == "__main__":
    raise SystemExit(main())
