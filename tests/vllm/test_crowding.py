"""Sixty-four requests at once get the answers that each gets alone; and two stages give them too.

Two families in the ordinary run; ten of different shape with ``HFSPEED_ALL_FAMILIES=1``, which is ``make crowding``.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
# windows and caps; linear biases; one key for all heads; latent attention; turned in part; positions that begin late;
# attention twice in a module; norms behind, norms of heads; an encoder as a decoder
FAMILIES = ("gemma2", "bloom", "falcon", "minicpm3", "stablelm", "opt", "diffllama", "olmo2", "qwen3", "roberta")
ALL = bool(os.environ.get("HFSPEED_ALL_FAMILIES"))
ROOM = {"gemma2": {"block_size": 16, "num_gpu_blocks_override": 40}}
"""Where layers of two kinds share it, beginnings would have no room to be kept."""
STAGES: dict[str, Any] = {"pipeline_parallel_size": 2, "enforce_eager": False, "distributed_executor_backend": "mp"}


def write(folder: Path, family: str) -> Path:
    known = importlib.import_module("checkpoints")
    writer = known if family in known.MODELS else importlib.import_module("families")
    writer.write(folder, family)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeded", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("family", FAMILIES if ALL else FAMILIES[:1])
def test_many_at_once(serving: ModuleType, tmp_path: Path, family: str, seeded: bool) -> None:
    """Prompts longer than every window, in pieces if greedy, with shared beginnings, thrown out and begun again."""
    ask = importlib.import_module("crowding").answers
    answer = serving.serve(write(tmp_path, family), ask=ask, seeded=seeded, **ROOM.get(family, {}))
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {OURS}
    assert answer["differing"] == []
    assert answer["apart"] < serving.TOLERANCE
    assert answer["preempted"] > 0
    assert answer["cached"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES if ALL else FAMILIES[2:3])
def test_two_stages(serving: ModuleType, tmp_path: Path, family: str) -> None:
    threads = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
    answer = serving.serve(write(tmp_path, family), environ=threads, **STAGES)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert answer["served"] == [OURS, OURS]
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
