"""Whole experts over ranks, and over replicas: two families here, six with ``make ranks``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
FAMILIES = ["mixtral", "gpt_oss", "qwen3_moe", "olmoe", "glm4_moe", "deepseek_v3"]
SAMPLE = 2
TWO = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp", "environ": {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}}

Checkpoint = Callable[[str], Path]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def some() -> list[Any]:
    every = bool(os.environ.get("HFSPEED_ALL_FAMILIES"))
    return [
        pytest.param(name, marks=[] if every or at < SAMPLE else pytest.mark.skip(reason="make ranks runs it"))
        for at, name in enumerate(FAMILIES)
    ]


def right(answer: dict[str, Any], tolerance: float) -> None:
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert all(name.startswith("hfspeed.vllm.models.") for name in answer["served"])
    assert answer["tokens"]
    assert answer["apart"] < tolerance


@pytest.mark.parametrize("name", some())
def test_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    """Each of two ranks has half of the experts, and all tokens."""
    right(serving.serve(checkpoint(name), enable_expert_parallel=True, **TWO), serving.TOLERANCE)


@pytest.mark.parametrize("name", some())
def test_replicas(serving: ModuleType, checkpoint: Checkpoint, tmp_path: Path, name: str) -> None:
    """Each of two replicas has half of the experts, and sends its tokens to the other's."""
    command = [sys.executable, str(HERE / "replicas.py"), str(checkpoint(name))]
    environ = os.environ | {"HFSPEED_REPLICAS": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    right(json.loads(done.stdout.splitlines()[-1]), serving.TOLERANCE)
