"""Every code shape that users stumbled over: what is said of it, what is mended, what vLLM answers: ``make shapes``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, ROOT):
    sys.path.insert(0, str(folder))

import asking  # noqa: E402
import every  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="make shapes", description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--serve", action="store_true", help="also serve each, as it is and mended, with vLLM")
    parser.add_argument("--total", type=int, default=0, help="begin no further one after so many seconds")
    given = parser.parse_args()
    serving = _serving() if given.serve else None
    wrong, begun = 0, time.monotonic()
    for name, shape in every.SHAPES.items():
        if given.names and not name.startswith(tuple(given.names)):
            continue
        if given.total and time.monotonic() - begun > given.total:
            print(f"stopped before {name}")
            break
        with tempfile.TemporaryDirectory() as folder:
            faults = asking.faults(Path(folder), shape, serving)
        wrong += bool(faults)
        print("\n    ".join([f"{'WRONG' if faults else 'right'}  {name}", *faults]), flush=True)
    print(json.dumps({"wrong": wrong, "seconds": round(time.monotonic() - begun)}))
    return int(bool(wrong))


def _serving() -> object:
    sys.path.insert(0, str(ROOT / "tests" / "vllm"))
    import serving

    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    serving.settle(Path(tempfile.mkdtemp()))
    return serving


if __name__ == "__main__":
    raise SystemExit(main())
