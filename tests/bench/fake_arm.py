"""A process that answers as an arm does, without an engine; what it is asked may also break it."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from hfspeed.bench import arm


class Pretends:
    def start(self, settings: dict[str, Any]) -> dict[str, Any]:
        print("starting", settings)
        names = ("VLLM_CACHE_ROOT", "HFSPEED", "HFSPEED_FUSIONS", "EXTRA")
        return {name: os.environ.get(name) for name in names}

    def count(self, seconds: float) -> dict[str, Any]:
        end, turns = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            turns += 1
            time.sleep(0.01)
        return {"turns": turns}

    def breaks(self) -> None:
        raise ValueError("no such layer")

    def dies(self) -> None:
        print("last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def child(self) -> dict[str, Any]:
        pid = os.fork()
        if not pid:
            time.sleep(600)
        return {"pid": pid}


if __name__ == "__main__":
    arm.answering(Pretends())
