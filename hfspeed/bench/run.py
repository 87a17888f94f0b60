"""The order of things: every arm starts cold, then warm, then the arms take turns, round by round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hfspeed.bench.arms import Arm
from hfspeed.bench.bounds import BOUNDS
from hfspeed.bench.job import Job
from hfspeed.bench.result import Record, Result
from hfspeed.bench.worker import ArmFailed, Worker

GIB = float(1 << 30)
PROGRAM = (sys.executable, "-m", "hfspeed.bench.bounds")
UNCOUNTED = 1_000_000
"""Rounds from this number on warm up."""
Tell = Callable[[str], None]


class Spawn(Protocol):
    """Starts the process of one arm."""

    def __call__(self, arm: Arm, folder: Path, *, environ: dict[str, str], program: tuple[str, ...] = ...) -> Worker:
        """A worker that has been started and asked nothing."""


class Bench:
    """One benchmark under way.

    Args:
        job: what is measured.
        arms: the ways to serve it, in the order of their turns.
        folder: where caches and logs go, one folder for each arm.
        result: filled as measuring goes on, so that it holds at any time what was measured until then.
        environ: for every process.
        tell: called before each step with what comes next; ``steps`` times in all.
        spawn: starts a process; `Worker`, if nothing else is given.
    """

    def __init__(
        self,
        job: Job,
        arms: Sequence[Arm],
        folder: Path,
        result: Result,
        *,
        environ: dict[str, str],
        tell: Tell,
        spawn: Spawn | None = None,
    ) -> None:
        self.job, self.arms, self.folder, self.result = job, arms, folder, result
        self.environ, self.tell, self.spawn = environ, tell, spawn or Worker
        self.records = {arm.name: Record(arm.name, arm.about) for arm in arms}
        self.done = dict.fromkeys(self.records, 0)
        self.workers: dict[str, Worker] = {}
        result.records = list(self.records.values())

    @property
    def steps(self) -> int:
        """How many steps there are if no other arm fails; one that failed has no more than it has had."""
        each = 1 + self.job.starts + self.job.rounds
        return sum(self.done[name] if record.error else each for name, record in self.records.items())

    def run(self) -> None:
        """Measure everything; Ctrl-C ends it early and is noted. No process is left behind."""
        try:
            for arm in self.arms:
                self._step(arm, "cold start", self._cold)
            for number in range(1, self.job.starts + 1):
                name = f"warm start {number} of {self.job.starts}" if self.job.starts > 1 else "warm start"
                for arm in self.arms:
                    self._step(arm, name, partial(self._warm, last=number == self.job.starts))
            self._bounds()
            for number in range(1, self.job.rounds + 1):
                for arm in self.arms:
                    self._step(arm, f"round {number} of {self.job.rounds}", partial(self._round, number=number))
            self._bounds()
        except KeyboardInterrupt:
            self.result.interrupted = True
        finally:
            for worker in self.workers.values():
                worker.stop()

    def _bounds(self) -> None:
        """What the model needs and what the machine can do now, from a process that is gone again before arms go on."""
        job, found = self.job, self.result.bounds
        worker = self.spawn(BOUNDS, self.folder / BOUNDS.name, environ=self.environ, program=PROGRAM)
        try:
            found["needs"] = worker.ask(
                "work",
                model=job.model,
                prompts=job.prompts,
                input_len=job.input_len,
                dtype=job.engine.get("dtype", "auto"),
                trust=job.engine.get("trust_remote_code", False),
            )
            found.setdefault("speeds", []).append(worker.ask("measure"))
        except ArmFailed as failure:
            found["needs"] = {"unknown": str(failure).splitlines()[0]}
        finally:
            worker.stop()

    def _step(self, arm: Arm, name: str, do: Callable[[Arm], None]) -> None:
        """One step of one arm; a failed arm does nothing more."""
        record = self.records[arm.name]
        if record.error:
            return
        self.tell(f"{arm.name}: {name}")
        self.done[arm.name] += 1
        try:
            do(arm)
        except ArmFailed as failure:
            record.error, record.log = str(failure), failure.log
            self._end(arm)

    def _cold(self, arm: Arm) -> None:
        self._start(arm, "cold")
        self._end(arm)

    def _warm(self, arm: Arm, last: bool) -> None:
        self._start(arm, "warm")
        if self.job.restart or not last:
            self._end(arm)
        else:
            self._ready(arm)
            self.workers[arm.name].pause()

    def _round(self, arm: Arm, number: int) -> None:
        if self.job.restart:
            self._start(arm, "again")
            self._ready(arm)
        worker, record = self.workers[arm.name], self.records[arm.name]
        worker.resume()
        said = worker.ask("measure", **self._asked(number))
        record.rounds.append(said["rates"])
        record.tokens.append(said["tokens"])
        record.raw.setdefault("runs", []).append(said.get("whole", {}))
        used = worker.ask("finish")
        for key in ("peak", "gpu_peak"):
            record.once[key] = max(record.once.get(key, 0.0), used[key] / GIB)
        if self.job.restart:
            self._end(arm)
        else:
            worker.pause()

    def _start(self, arm: Arm, how: str) -> None:
        begin = time.perf_counter()
        worker = self.spawn(arm, self.folder / arm.name, environ=self.environ)
        self.workers[arm.name] = worker
        said = worker.ask("start", settings=self.job.settings(arm))
        spent = time.perf_counter() - begin
        record = self.records[arm.name]
        for rank in said["ranks"]:
            if not arm.is_served_by(rank["class"]):
                raise ArmFailed(f"{rank['class']} serves, which is not the {arm.name} arm", worker.tail())
        record.once["cache"] = said["cache_tokens"]
        record.raw["served"] = said["ranks"]
        figures = {f"{how}_start": spent, f"{how}_cpu": said["cpu"]}
        if how == "cold":
            record.once |= figures
        elif how == "warm":
            record.warm.append(figures)

    def _ready(self, arm: Arm) -> None:
        """Run what is not counted: the first batches compile, allocate and fill caches."""
        for number in range(self.job.warmups):
            self.workers[arm.name].ask("measure", **self._asked(UNCOUNTED + number))

    def _asked(self, number: int) -> dict[str, Any]:
        job = self.job
        return {"prompts": job.tokens(number), "length": job.output_len, "told": job.written(number)}

    def _end(self, arm: Arm) -> None:
        worker = self.workers.pop(arm.name, None)
        if worker is not None:
            worker.stop()
