"""Hold every parallel plan that transformers carries against the one found from code: ``make plans``.

Prints a table and writes a JSON file per configuration class; a run of a few leaves the others as they were. The exit
status is 1 if any plan found from code is wrong where the one by hand is right.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
for folder in (HERE, ROOT):
    sys.path.insert(0, str(folder))

import compare  # noqa: E402
import declaring  # noqa: E402
import page  # noqa: E402

from hfspeed.errors import HfspeedError  # noqa: E402
from hfspeed.plan.styles import KINDS, attribute  # noqa: E402
from hfspeed.planner.import_file import AUTHOR_ERRORS  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(prog="make plans", description=__doc__)
    parser.add_argument("names", nargs="*", help="configuration classes; all of them by default")
    parser.add_argument("--output", type=Path, default=ROOT / ".plans", help="folder of the results")
    parser.add_argument("--limit", type=int, default=300, help="seconds that one may take")
    parser.add_argument("--total", type=int, default=0, help="begin no further one after so many seconds")
    parser.add_argument("--page", type=Path, help="write the results as a page of documentation, and run nothing")
    parser.add_argument("--commit", default="", help="what the page says that the results are of")
    parser.add_argument("--new", action="store_true", help="leave out those with a result")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    if given.page:
        given.page.write_text(page.rendered(_read(given.output), given.commit), "utf-8")
        return 0
    begun = time.monotonic()
    for name, config_class in declaring.configurations().items():
        file = given.output / f"{name}.json"
        if (given.names and name not in given.names) or (given.new and file.exists()):
            continue
        if given.total and time.monotonic() - begun > given.total:
            print("stopped: --total")
            break
        result = _alone(config_class, given.limit)
        file.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        print(_line(name, result), flush=True)
    results = _read(given.output)
    print(page.summary(results))
    return int(any(k["verdict"] == compare.WORSE for one in results.values() for k in one.get("kinds", {}).values()))


def _read(folder: Path) -> dict[str, Any]:
    return {one.stem: json.loads(one.read_text("utf-8")) for one in sorted(folder.glob("*.json"))}


def _alone(config_class: type[Any], limit: int) -> dict[str, Any]:
    """The result of one class, found in a process of its own."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        signal.alarm(limit)
        with os.fdopen(writes, "w") as pipe:
            json.dump(_result(config_class), pipe)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else _none(config_class, f"not done within {limit} seconds, or out of memory")


def _result(config_class: type[Any]) -> dict[str, Any]:
    from hfspeed.planner.looked import look
    from hfspeed.planner.styled import derive

    begun = time.monotonic()
    try:
        subject = declaring.subject(config_class)
        seen = look(subject)
        kinds = compare.compared(seen, derive(seen))
    except declaring.OutOfScope as why:
        return {"out of scope": str(why), "kinds": {}, "declares": _declares(config_class)}
    except (HfspeedError, *AUTHOR_ERRORS) as error:
        return _none(config_class, " ".join(str(error).split())[:400])
    return {"model": subject.model_class.__name__, "seconds": round(time.monotonic() - begun, 1), "kinds": kinds}


def _none(config_class: type[Any], why: str) -> dict[str, Any]:
    return {"kinds": {kind: {"verdict": compare.NOT, "why": why} for kind in _declares(config_class)}}


def _declares(config_class: type[Any]) -> list[str]:
    return [kind for kind in KINDS if getattr(config_class, attribute(kind), None)]


def _line(name: str, result: dict[str, Any]) -> str:
    if why := result.get("out of scope"):
        return f"{name}: out of scope: {why}"
    told = [
        f"  {kind} {one['verdict']}" + (f": {one['why']}" if one["why"] else "")
        for kind, one in result["kinds"].items()
    ]
    return "\n".join([f"{name} ({result.get('seconds', '-')} s)", *told])


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    raise SystemExit(main())
