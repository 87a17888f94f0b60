"""The order of starts and rounds; what an arm's failure, a wrong class and Ctrl-C leave behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import CLASSES, JOB, RATES, Stage, failure

from hfspeed.bench.arms import ARMS
from hfspeed.bench.job import Job
from hfspeed.bench.measures import MEASURES
from hfspeed.bench.result import Result
from hfspeed.bench.run import Bench


def bench(stage: Stage, job: Job = JOB, arms: int = 3) -> tuple[Bench, list[str]]:
    told: list[str] = []
    result = Result("model", "", {}, {})
    made = Bench(job, ARMS[:arms], Path("runs"), result, environ={}, tell=told.append, spawn=stage.spawn)
    made.run()
    return made, told


def test_arms_take_turns() -> None:
    stage = Stage()
    made, told = bench(stage)
    names = ["native", "hfspeed", "unfused"]
    starts = [f"{name}: {how} start" for how in ("cold", "warm") for name in names]
    rounds = [f"{name}: round {number} of 5" for number in range(1, 6) for name in names]
    assert told == starts + rounds
    assert len(told) == made.steps
    assert [len(record.rounds) for record in made.result.records] == [5, 5, 5]
    assert made.result.records[1].rounds[0] == RATES, "warm-up is left out"
    assert made.result.records[1].once["peak"] == 1.0
    assert {"cold_start", "cold_cpu", "cache"} <= set(made.result.records[0].once)
    assert [set(figures) for figures in made.result.records[0].warm] == [{"warm_start", "warm_cpu"}]


def test_warm_starts_take_turns_too() -> None:
    stage = Stage()
    made, told = bench(stage, replace(JOB, starts=3), arms=2)
    assert told[2:5] == ["native: warm start 1 of 3", "hfspeed: warm start 1 of 3", "native: warm start 2 of 3"]
    assert len(told) == made.steps
    assert [len(record.warm) for record in made.result.records] == [3, 3]
    warm = next(measure for measure in MEASURES if measure.key == "warm_start")
    ratio = made.result.ratio(made.result.records[1], warm)
    assert ratio is not None
    assert ratio.rounds == 3


def test_only_one_runs_at_a_time() -> None:
    stage = Stage()
    bench(stage)
    running: set[str] = set()
    for line in stage.seen:
        name, what = line.split(" ", 1)
        if what.startswith(("spawned", "resumed")):
            running.add(name)
        elif what in {"paused", "stopped"}:
            running.discard(name)
        assert len(running) <= 1, line
    assert [line for line in stage.seen if line.endswith("stopped")][-4:] == [
        "bounds stopped",
        "native stopped", "hfspeed stopped", "unfused stopped",
    ]  # fmt: skip


def test_with_restart_no_two_live_beside_each_other() -> None:
    stage = Stage()
    made, _ = bench(stage, replace(JOB, restart=True))
    alive = 0
    for line in stage.seen:
        alive += 1 if "spawned" in line else -1 if line.endswith("stopped") else 0
        assert alive <= 1
    assert [len(record.rounds) for record in made.result.records] == [5, 5, 5]
    assert not made.workers


@pytest.mark.parametrize(
    ("do", "time", "rounds"), [("start", 1, 0), ("start", 2, 0), ("measure", 1, 0), ("measure", 4, 2)]
)
def test_a_failed_arm_is_told_and_the_others_go_on(do: str, time: int, rounds: int) -> None:
    stage = Stage(hfspeed=(do, time, failure("out of memory")))
    made, _ = bench(stage)
    native, hfspeed, unfused = made.result.records
    assert (hfspeed.error, hfspeed.log, len(hfspeed.rounds)) == ("out of memory", "the log", rounds)
    assert len(native.rounds) == len(unfused.rounds) == 5
    assert not native.error
    assert stage.seen.count("hfspeed stopped") == sum("hfspeed spawned" in line for line in stage.seen)


def test_an_arm_that_another_class_serves_has_failed() -> None:
    stage = Stage(serves={"hfspeed": CLASSES["native"], "native": CLASSES["peer"]})
    made, _ = bench(stage)
    native, hfspeed, unfused = made.result.records
    assert "which is not the hfspeed arm" in hfspeed.error
    assert "which is not the native arm" in native.error
    assert len(unfused.rounds) == 5


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_knows_its_class(arm: Any) -> None:
    assert {name for name, cls in CLASSES.items() if arm.is_served_by(cls)} - {"unfused", "hfspeed"} == (
        {arm.name} - {"unfused", "hfspeed"}
    )
    assert arm.is_served_by(CLASSES[arm.name])


def test_control_c_keeps_what_was_measured() -> None:
    stage = Stage(unfused=("measure", 4, KeyboardInterrupt()))
    made, _ = bench(stage)
    assert made.result.interrupted
    assert [len(record.rounds) for record in made.result.records] == [3, 3, 2]
    assert stage.seen[-3:] == ["native stopped", "hfspeed stopped", "unfused stopped"]


def test_prompts_are_the_same_for_every_arm_and_new_in_each_round() -> None:
    assert JOB.tokens(1) == JOB.tokens(1)
    assert JOB.tokens(1) != JOB.tokens(2)
    assert [len(prompt) for prompt in JOB.tokens(1)] == [4, 4]
    assert all(0 < token < 100 for prompt in JOB.tokens(3) for token in prompt)


def test_settings_differ_in_one_thing() -> None:
    native, hfspeed = (JOB.settings(arm) for arm in ARMS[:2])
    assert {key for key in native if native[key] != hfspeed[key]} == {"model_impl"}


def test_what_a_failed_arm_will_not_do_counts_no_more() -> None:
    """A bar that counted it would stand at nine tenths, or jump."""
    stage = Stage(hfspeed=("measure", 4, failure("out of memory")))
    made, told = bench(stage)
    assert made.result.records[1].error
    mine = [step for step in told if step.startswith("hfspeed:")]
    assert len(mine) < len(told) / 3
    assert "round 5 of 5" not in mine[-1]
    assert len(told) == made.steps
