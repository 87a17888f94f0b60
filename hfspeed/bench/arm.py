"""One arm's process: starts its engine and measures when asked, over a pipe.

Started as ``python -m hfspeed.bench.arm OUT``. Requests come as lines of JSON on standard input, answers go as lines of
JSON to the file descriptor OUT; standard output and error belong to vLLM.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from hfspeed.bench.tree import cpu_seconds, peak_bytes

Answer = dict[str, Any]
MILLI = 1e3
PR_SET_PDEATHSIG = 1


class Measured:
    """What a process can be asked to do."""

    def __init__(self) -> None:
        self.engine: Any = None

    def start(self, settings: dict[str, Any]) -> Answer:
        """Make the engine; what it serves with."""
        begin = time.perf_counter()
        from hfspeed.vllm.engine import Engine

        self.engine = Engine(settings, cpu_seconds)
        spent = time.perf_counter() - begin
        return {"inside": spent, "cpu": cpu_seconds(), **self.engine.facts()}

    def measure(self, prompts: list[list[int]], length: int, told: list[int] | None = None) -> Answer:
        """One round: the prompts alone, then with everything they generate; ``told`` are the tokens to write."""
        alone = self.engine.run(prompts, 1, told)
        whole = self.engine.run(prompts, length, told)
        read, written = sum(map(len, prompts)), sum(map(len, whole.tokens))
        rates = {
            "prefill": read / alone.seconds,
            "prefill_cpu": MILLI * alone.cpu / read,
            "whole": (read + written) / whole.seconds,
            "whole_cpu": MILLI * whole.cpu / (read + written),
            "first": MILLI * statistics.median(whole.first),
        }
        if whole.decode_tokens:
            rates["decode"] = whole.decode_tokens / whole.decode_seconds
            rates["decode_cpu"] = MILLI * whole.decode_cpu / whole.decode_tokens
        if whole.gaps:
            rates["gap"] = MILLI * statistics.median(whole.gaps)
        return {"rates": rates, "tokens": whole.tokens, "whole": _without_tokens(asdict(whole))}

    def finish(self) -> Answer:
        """What the process has held."""
        facts = self.engine.facts()
        return {"peak": peak_bytes(), "gpu_peak": sum(rank["gpu_bytes"] for rank in facts["ranks"])}


def _without_tokens(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if name not in {"tokens", "gaps"}}


def serve(measured: Any, requests: Iterable[str], answer: Callable[[Answer], None]) -> int:
    """Answer requests until there are no more, or one fails; the exit status."""
    for line in requests:
        request = json.loads(line)
        try:
            answer({"ok": getattr(measured, request.pop("do"))(**request)})
        except Exception as error:  # noqa: BLE001  whatever stops one arm is told, and the other arms go on
            answer({"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
            return 1
    return 0


def die_with_parent() -> None:
    """Ask Linux to kill this process when the one that measures is gone: a paused one could not see it by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def answering(measured: Any) -> None:
    """Serve the pipe whose descriptor is the first argument of the command line, and end the process."""
    die_with_parent()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as out:

        def answer(said: Answer) -> None:
            out.write(json.dumps(said) + "\n")
            out.flush()

        status = serve(measured, sys.stdin, answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # an engine's own way out may wait for workers that the parent ends anyway


if __name__ == "__main__":
    answering(Measured())
