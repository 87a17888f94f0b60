"""Whole engines over real plans: the served class is ours, tokens are exact, log probabilities close."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
TWO = {"distributed_executor_backend": "mp"}
THREADS = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}

Checkpoint = Callable[[str], Path]


def right(serving: ModuleType, answer: dict[str, Any]) -> None:
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {OURS}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", ["llama", "llama_tied", "qwen3", "olmo2", "gemma2", "granite", "mistral", "phi3", "starcoder2"]
)
def test_eager(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    right(serving, serving.serve(checkpoint(name)))


@pytest.mark.timeout(600)
def test_chunked_prefill_and_prefix_caching(serving: ModuleType, checkpoint: Checkpoint) -> None:
    settings = {"max_num_batched_tokens": 32, "max_num_seqs": 4, "enable_prefix_caching": True, "block_size": 32}
    answer = serving.serve(checkpoint("gemma2"), repeats=2, **settings)
    right(serving, answer)
    assert answer["cached"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled_and_started_again(serving: ModuleType, checkpoint: Checkpoint, capfd: Any) -> None:
    settings: dict[str, Any] = {"enforce_eager": False, "environ": {"VLLM_LOGGING_LEVEL": "INFO"}}
    right(serving, serving.serve(checkpoint("qwen3"), **settings))
    first = capfd.readouterr()
    said = first.out + first.err
    assert "saved AOT compiled function" in said
    assert "unable to save AOT compiled function" not in said
    before = _artifacts()
    right(serving, serving.serve(checkpoint("qwen3"), **settings))
    assert _artifacts() == before
    second = capfd.readouterr()
    said = second.out + second.err
    assert "Directly load AOT compilation" in said
    assert "Compiling model again" not in said


def _artifacts() -> set[str]:
    """The keys under which compiled graphs are kept."""
    import os

    root = Path(os.environ["VLLM_CACHE_ROOT"]) / "torch_compile_cache" / "torch_aot_compile"
    return {entry.name for entry in root.iterdir()}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama_one_kv", "qwen3", "gemma2", "olmo2", "granite", "phi3"])
def test_two_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    answer = serving.serve(checkpoint(name), environ=THREADS, tensor_parallel_size=2, **TWO)
    right(serving, answer)
    assert len(answer["served"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["llama_tied", "qwen3", "gemma2", "olmo2", "granite"])
def test_two_stages_compiled(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    # the engine asserts on two stages without compilation on CPU, whoever's model it is
    answer = serving.serve(checkpoint(name), environ=THREADS, pipeline_parallel_size=2, enforce_eager=False, **TWO)
    right(serving, answer)
    assert len(answer["served"]) == 2


@pytest.mark.timeout(600)
def test_dummy_weights(serving: ModuleType, checkpoint: Checkpoint) -> None:
    answer = serving.serve(checkpoint("llama_tied"), load_format="dummy", load_only=True)
    assert answer.get("served") == [OURS], answer


@pytest.mark.timeout(600)
def test_what_is_not_served_stops_the_engine(serving: ModuleType, checkpoint: Checkpoint) -> None:
    answer = serving.serve(checkpoint("llama"), load_only=True, runner="pooling")
    assert "hidden states" in answer.get("error", ""), answer
    assert "HFSPEED=off" in answer["error"]


@pytest.mark.timeout(600)
def test_latent_attention_with_full_heads(serving: ModuleType, checkpoint: Checkpoint) -> None:
    """vLLM would lay its cache out for latent values; and its values are narrower than its keys."""
    right(serving, serving.serve(checkpoint("minicpm3")))


@pytest.mark.timeout(600)
def test_switched_off(serving: ModuleType, checkpoint: Checkpoint) -> None:
    answer = serving.serve(checkpoint("llama"), environ={"HFSPEED": "off"}, load_only=True)
    assert answer.get("served"), answer
    assert answer["served"][0].startswith("vllm.model_executor.models.transformers")


@pytest.mark.timeout(600)
def test_a_checkpoint_with_a_missing_tensor_stops_the_engine(
    serving: ModuleType, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    source = checkpoint("llama")
    (tmp_path / "config.json").write_text((source / "config.json").read_text())
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.0.mlp.surprise.weight"] = tensors.pop("model.layers.1.self_attn.q_proj.weight")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    answer = serving.serve(tmp_path, load_only=True)
    assert "model.layers.1.self_attn.q_proj.weight" in answer.get("error", ""), answer
    assert "surprise" in answer["error"]
