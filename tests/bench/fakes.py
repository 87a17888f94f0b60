"""Results and workers without an engine."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hfspeed.bench.arms import ARMS, Arm
from hfspeed.bench.job import Job
from hfspeed.bench.measures import ROUND
from hfspeed.bench.result import Record, Result
from hfspeed.bench.worker import ArmFailed

JOB = Job("model", prompts=2, input_len=4, output_len=3, vocabulary=100)
CLASSES = {
    "native": "vllm.model_executor.models.llama.LlamaForCausalLM",
    "hfspeed": "hfspeed.vllm.models.causal.TransformersForCausalLM",
    "unfused": "hfspeed.vllm.models.causal.TransformersForCausalLM",
    "peer": "vllm.model_executor.models.transformers.causal.TransformersForCausalLM",
}
RATES = {"prefill": 900.0, "decode": 110.0, "whole": 300.0, "whole_cpu": 6.0, "first": 2200.0, "gap": 140.0}


def result(speeds: dict[str, float], rounds: int = 5, noise: float = 0.0) -> Result:
    """Arms that do everything ``speed`` times as well as native."""
    draw = random.Random(0)
    more = {measure.key: measure.more for measure in ROUND}
    records = []
    for arm in ARMS:
        if arm.name in speeds:
            one = Record(arm.name, arm.about, once={"cold_start": 60 / speeds[arm.name], "peak": 2.0})
            for _ in range(rounds):
                speed = speeds[arm.name] * (1 + draw.uniform(-noise, noise))
                one.rounds.append({key: v * speed if more[key] else v / speed for key, v in RATES.items()})
                one.tokens.append([[1, 2, 3, 4], [5, 6, 7, 8]])
            records.append(one)
    machine = {"processor": "a <processor>", "cores": 2, "gpus": [], "packages": {"vllm": "1"}, "load": [0.0]}
    return Result("small & <odd>", "hfspeed bench small", {}, machine, records)


class Stage:
    """Workers that write down what happens to them."""

    def __init__(self, **trouble: Any) -> None:
        self.seen: list[str] = []
        self.trouble = trouble

    def spawn(self, arm: Arm, folder: Path, *, environ: dict[str, str], program: tuple[str, ...] = ()) -> Any:
        self.seen.append(f"{arm.name} spawned in {folder.name}")
        return Fake(self, arm)


class Fake:
    def __init__(self, stage: Stage, arm: Arm) -> None:
        self.stage, self.arm = stage, arm

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        name = self.arm.name
        self.stage.seen.append(f"{name} {do}")
        trouble = self.stage.trouble.get(name)
        if trouble and trouble[0] == do and self.stage.seen.count(f"{name} {do}") == trouble[1]:
            raise trouble[2]
        if do == "start":
            served = self.stage.trouble.get("serves", {}).get(name, CLASSES[name])
            return {"ranks": [{"class": served}], "cache_tokens": 64, "cpu": 1.0}
        if do == "work":
            return {"read": 2e9, "multiply": 1e9}
        if do == "measure" and name == "bounds":
            return {"read": 1e10, "multiply": 1e12}
        if do == "measure":
            return {"rates": dict(RATES), "tokens": [[1, 2, 3]] * len(what["prompts"])}
        return {"peak": 1 << 30, "gpu_peak": 0}

    def pause(self) -> None:
        self.stage.seen.append(f"{self.arm.name} paused")

    def resume(self) -> None:
        self.stage.seen.append(f"{self.arm.name} resumed")

    def stop(self) -> None:
        self.stage.seen.append(f"{self.arm.name} stopped")

    def tail(self) -> str:
        return "the log"


def failure(text: str = "it broke") -> ArmFailed:
    return ArmFailed(text, "the log")
