"""What arithmetic says of every rank is what vLLM allocates: weights, cache and states, within one in a hundred."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Checkpoint = Callable[[str], Path]
TWO = {"distributed_executor_backend": "mp", "environ": {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}}
LENGTH = 128
CLOSE = 0.01


def told(folder: Path, dtype: str, ranks: int, stages: int) -> list[Any]:
    """One `Holding` per process of vLLM's, stage by stage."""
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    from hfspeed.plan.holdings import holdings
    from hfspeed.plan.places import Layout
    from hfspeed.planner.load import load
    from hfspeed.planner.serve import planned
    from hfspeed.planner.sources import sources

    subject = load(str(folder))
    plan, _ = planned(subject)
    known = tuple(CPUAttentionBackend.get_supported_head_sizes())
    held = holdings(plan, sources(subject, plan, dtype), Layout(ranks, stages), kernel_heads=known).held
    return [one for one in held for _ in range(*one.ranks)]


def compare(serving: ModuleType, folder: Path, *, dtype: str = "float32", ranks: int = 1, stages: int = 1) -> None:
    two = {} if ranks * stages == 1 else TWO | {"tensor_parallel_size": ranks, "pipeline_parallel_size": stages}
    answer = serving.serve(folder, measured=True, load_only=True, dtype=dtype, max_model_len=LENGTH, **two)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert all(name.startswith("hfspeed.vllm.models.") for name in answer.get("served", [""])), answer
    processes = list(zip(told(folder, dtype, ranks, stages), answer["held"], answer["specs"], strict=True))
    assert len(processes) == ranks * stages
    for ours, held, specs in processes:
        assert dict(ours.weights) == pytest.approx(held, rel=CLOSE)
        assert ours.bytes == pytest.approx(sum(held.values()), rel=CLOSE)
        cache = sum(one.real_page_size_bytes / one.block_size for one in specs.values() if not _is_state(one))
        states = sum(_state_bytes(one) for one in specs.values() if _is_state(one))
        assert ours.cache == pytest.approx(cache, rel=CLOSE)
        assert ours.state + ours.history * LENGTH == pytest.approx(states, rel=CLOSE)


def _is_state(spec: Any) -> bool:
    return type(spec).__name__ == "MambaSpec"


def _state_bytes(spec: Any) -> int:
    (shape,), (dtype,) = spec.shapes, spec.dtypes
    return int(shape[0]) * dtype.itemsize


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama_tied", "gemma2", "mixtral", "bamba"])
def test_one_rank(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    compare(serving, checkpoint(name))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quantised_by_row(serving: ModuleType, checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Linears in int8 with a scale for each row. vLLM widens scales to float32, and has a few numbers of its own."""
    importlib.import_module("checkpoints").quantised(tmp_path / "int8", checkpoint("llama"))
    settings: dict[str, Any] = {"dtype": "bfloat16", "max_model_len": LENGTH}
    answer = serving.serve(tmp_path / "int8", measured=True, load_only=True, **settings)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert all(name.startswith("hfspeed.vllm.models.") for name in answer.get("served", [""])), answer
    (held,), (ours,) = answer["held"], told(tmp_path / "int8", "bfloat16", 1, 1)
    assert dict(ours.weights)["int8"] == held["int8"]
    rows = 2 * (4 * 32 + 2 * 2 * 32 + 64 + 2 * 96 + 64)
    assert 0 <= sum(held.values()) - ours.bytes - 2 * rows < 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama_one_kv", "mixtral"])
def test_two_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    compare(serving, checkpoint(name), ranks=2)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_stages_of_a_tied_table(serving: ModuleType, checkpoint: Checkpoint) -> None:
    compare(serving, checkpoint("llama_tied"), stages=2)


@pytest.fixture(scope="module")
def middling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred megabytes of random weights, in half precision."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("middling")
    sizes = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "vocab_size": 30_001}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    config = transformers.Qwen3Config(**sizes, **heads, max_position_embeddings=512)
    config.architectures = ["Qwen3ForCausalLM"]
    model = transformers.Qwen3ForCausalLM(config).to(torch.bfloat16)
    assert sum(one.numel() for one in model.parameters()) > 50_000_000
    model.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_hundred_megabytes(serving: ModuleType, middling: Path, ranks: int) -> None:
    compare(serving, middling, dtype="bfloat16", ranks=ranks)
