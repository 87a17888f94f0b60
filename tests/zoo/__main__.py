"""Serve a tiny checkpoint of every family with vLLM, and say what became of it: ``make zoo``.

Writes a table to the terminal and ``zoo.json``, and shows every family that changed since the last run. The exit
status is 1 if any family answers otherwise than its author's code.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, HERE.parent / "vllm", ROOT):
    sys.path.insert(0, str(folder))

import board  # noqa: E402
import keeper  # noqa: E402
import runner  # noqa: E402


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="families, or @group; all of them by default")
    parser.add_argument("--checkpoints", type=Path, help="a folder of checkpoints; else they are written")
    parser.add_argument("--ranks", type=int, default=1, help="tensor-parallel ranks")
    parser.add_argument("--jobs", type=int, help="engines at a time (default: one per core and rank)")
    parser.add_argument("--limit", type=float, default=240, help="seconds that a family may take")
    parser.add_argument("--output", type=Path, default=ROOT / ".zoo", help="folder of the results")
    return parser.parse_args()


def main() -> int:
    given = options()
    given.output.mkdir(parents=True, exist_ok=True)
    families = keeper.families(given.checkpoints, given.output / "checkpoints", given.names)
    if not families:
        raise SystemExit(f"no family is called {', '.join(given.names)}")
    results: dict[str, dict[str, Any]] = {name: one for name, one in families.items() if "outcome" in one}
    todo = {name: one for name, one in families.items() if name not in results}
    with tempfile.TemporaryDirectory() as folder:
        for name, result in runner.run(todo, Path(folder), ranks=given.ranks, jobs=given.jobs, limit=given.limit):
            results[name] = result
            print(board.line(name, result), flush=True)
    file = given.output / ("zoo.json" if given.ranks == 1 else f"zoo-{given.ranks}-ranks.json")
    before = json.loads(file.read_text("utf-8")) if file.exists() else {}
    print(board.summary(results, before))
    # a run of a few families leaves the others as they were
    file.write_text(json.dumps(dict(sorted((before | results).items())), indent=1) + "\n", encoding="utf-8")
    print(f"written to {file}")
    return int(any(one["outcome"] == board.DIFFERENT for one in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
