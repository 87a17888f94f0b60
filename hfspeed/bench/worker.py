"""An arm's process seen from outside: started with caches of its own, asked, paused while others run, ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hfspeed.bench.arms import Arm

PROGRAM = (sys.executable, "-m", "hfspeed.bench.arm")
TAIL = 25
"""Lines of an arm's own output that are told with its failure."""


class ArmFailed(Exception):  # noqa: N818  what happened, as the table says it
    """One arm did not start, broke or gave no answer; the message is for people, ``log`` its last lines."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Worker:
    """One process and its descendants, in a process group of their own.

    Args:
        arm: what it is.
        folder: caches and the log of this arm; a second worker in the same folder starts warm.
        environ: more for the environment, from the job.
        limit: seconds that one answer may take.
        program: the command; a descriptor's number is added.
    """

    def __init__(
        self,
        arm: Arm,
        folder: Path,
        *,
        environ: dict[str, str] | None = None,
        limit: float = 3600,
        program: tuple[str, ...] = PROGRAM,
    ) -> None:
        self.arm, self.limit = arm, limit
        self.log = folder / "log.txt"
        folder.mkdir(parents=True, exist_ok=True)
        self.begin = time.perf_counter()
        reading, writing = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603  our own module
                [*program, str(writing)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[writing],
                env=environment(arm, folder) | (environ or {}),
                start_new_session=True,
            )
        os.close(writing)
        self.answers = os.fdopen(reading, encoding="utf-8")

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            ArmFailed: the process reports an error, has died, or takes too long.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise self._died() from error
        if not select.select([self.answers], [], [], self.limit)[0]:
            raise ArmFailed(f"no answer to `{do}` within {self.limit:.0f} s", self.tail())
        line = self.answers.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ArmFailed(answer["error"], answer.get("trace", "") or self.tail())
        found: dict[str, Any] = answer["ok"]
        return found

    def pause(self) -> None:
        """Stop the clock of the whole group: a waiting engine may spin, which would slow down the others."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it run again."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the group, gently at first; safe to repeat."""
        self.resume()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=5)
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.answers.close()

    def tail(self) -> str:
        """The last lines of what the process printed."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(lines[-TAIL:])

    def _died(self) -> ArmFailed:
        try:
            status = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return ArmFailed("its process closed the pipe", self.tail())
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit code {status}"
        hint = "; not enough memory?" if status == -signal.SIGKILL else ""
        return ArmFailed(f"its process ended {how}{hint}", self.tail())

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def environment(arm: Arm, folder: Path) -> dict[str, str]:
    """The environment of an arm's process: nothing another arm has compiled or planned can be found in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HFSPEED")}
    own = {
        "VLLM_CACHE_ROOT": str(folder / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "HFSPEED_CACHE_DIR": str(folder / "hfspeed"),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # the question which class serves is a function, sent to its ranks
        "PYTHONUNBUFFERED": "1",
    }
    return kept | own | arm.environ
