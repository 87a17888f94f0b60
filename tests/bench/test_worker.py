"""Real processes, without engines: environment, pausing, errors, deaths, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hfspeed.bench.arms import ARMS
from hfspeed.bench.tree import cpu_seconds, descendants, peak_bytes
from hfspeed.bench.worker import ArmFailed, Worker

PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_arm.py")))
NATIVE, HFSPEED, UNFUSED, _ = ARMS


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    started: list[Worker] = []
    monkeypatch.setenv("HFSPEED_FUSIONS", "-gated")

    def one(arm: Any = HFSPEED, **settings: Any) -> Worker:
        started.append(Worker(arm, tmp_path / arm.name, program=PROGRAM, **settings))
        return started[-1]

    yield one
    for worker in started:
        worker.stop()


def test_each_arm_has_its_own_environment(start: Any, tmp_path: Path) -> None:
    arms, extra = (NATIVE, HFSPEED, UNFUSED), {"EXTRA": "1"}
    said = {arm.name: start(arm, environ=extra).ask("start", settings={}) for arm in arms}
    assert said["native"]["HFSPEED"] == "off"
    assert said["hfspeed"]["HFSPEED"] is None
    assert said["hfspeed"]["HFSPEED_FUSIONS"] is None, "what the caller switched off does not leak in"
    assert said["unfused"]["HFSPEED_FUSIONS"] == "none"
    assert {entry["EXTRA"] for entry in said.values()} == {"1"}
    roots = {entry["VLLM_CACHE_ROOT"] for entry in said.values()}
    assert len(roots) == 3
    assert all(root.startswith(str(tmp_path)) for root in roots)


def test_an_error_is_told_with_its_trace(start: Any) -> None:
    worker = start()
    with pytest.raises(ArmFailed, match="ValueError: no such layer") as failed:
        worker.ask("breaks")
    assert "in breaks" in failed.value.log


def test_a_death_is_told_with_the_last_words(start: Any) -> None:
    worker = start()
    with pytest.raises(ArmFailed, match=r"ended by SIGKILL; not enough memory\?") as failed:
        worker.ask("dies")
    assert "last words" in failed.value.log
    with pytest.raises(ArmFailed, match="SIGKILL"):
        worker.ask("count", seconds=0)


def test_patience_ends(start: Any) -> None:
    worker = start(limit=0.2)
    with pytest.raises(ArmFailed, match="no answer to `count`"):
        worker.ask("count", seconds=30)


def test_a_paused_worker_does_nothing(start: Any) -> None:
    worker = start()
    worker.ask("count", seconds=0)
    worker.pause()
    worker.limit = 0.5
    with pytest.raises(ArmFailed, match="no answer"):
        worker.ask("count", seconds=0)
    worker.resume()
    assert worker.answers.readline()


def test_stopping_takes_the_children_along(start: Any) -> None:
    worker = start()
    pid = worker.ask("child")["pid"]
    assert pid in descendants(worker.process.pid)
    worker.stop()
    worker.stop()
    gone(pid)


def test_a_paused_worker_ends_with_who_started_it(tmp_path: Path) -> None:
    program = f"""
import os, signal
from pathlib import Path
from hfspeed.bench.arms import ARMS
from hfspeed.bench.worker import Worker
worker = Worker(ARMS[0], Path({str(tmp_path)!r}), program={PROGRAM!r})
worker.ask("count", seconds=0)
worker.pause()
print(worker.process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    gone(int(run.stdout))


def gone(pid: int) -> None:
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"{pid} lives on")


def test_the_tree_is_counted() -> None:
    before = cpu_seconds()
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    assert 0.2 <= cpu_seconds() - before < 1
    pid = os.fork()
    if not pid:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    assert cpu_seconds() - before >= 0.45
    assert 10 << 20 < peak_bytes() < 100 << 30
