"""Models whose attention is written by hand: through vLLM's gate, into paged attention, with their authors' numbers."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
WIDE: dict[str, Any] = {"hidden_size": 128}
NARROW: dict[str, Any] = WIDE | {"head_dim": ...}
BY_HAND: dict[str, tuple[str, dict[str, Any]]] = {
    # windows in every other layer, positions learned
    "gpt_neo": ("GPTNeoForCausalLM", WIDE | {"attention_types": [[["global", "local"], 1]], "window_size": 16}),
    "gptj": ("GPTJForCausalLM", WIDE | {"rotary_dim": 16}),
    "codegen": ("CodeGenForCausalLM", WIDE | {"rotary_dim": 16}),
    "falcon": ("FalconForCausalLM", NARROW),
    "falcon_new": ("FalconForCausalLM", NARROW | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    # linear biases; the base model takes no positions
    "bloom": ("BloomForCausalLM", WIDE),
    "bloom_six": ("BloomForCausalLM", {"hidden_size": 192, "num_attention_heads": 6}),
    "mpt": ("MptForCausalLM", WIDE | {"max_seq_len": 256}),
    "gpt_neox_japanese": ("GPTNeoXJapaneseForCausalLM", WIDE),
    "openai": ("OpenAIGPTLMHeadModel", WIDE),
    "xglm": ("XGLMForCausalLM", WIDE | {"ffn_dim": 96}),
}
SAMPLE = ("gpt_neo", "bloom")


def served(serving: ModuleType, folder: Path, name: str, **settings: Any) -> dict[str, Any]:
    checkpoints = importlib.import_module("checkpoints")
    checkpoints.MODELS[name] = BY_HAND[name]
    checkpoints.write(folder, name)
    answer: dict[str, Any] = serving.serve(folder, **settings)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {OURS}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
    return answer


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SAMPLE)
def test_exact(serving: ModuleType, tmp_path: Path, name: str) -> None:
    served(serving, tmp_path, name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [name for name in BY_HAND if name not in SAMPLE])
def test_every_family_is_exact(serving: ModuleType, tmp_path: Path, name: str) -> None:
    served(serving, tmp_path, name)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled(serving: ModuleType, tmp_path: Path) -> None:
    """No mask is made, so nothing in the graph depends on values."""
    served(serving, tmp_path, "gpt_neo", enforce_eager=False)


@pytest.mark.timeout(300)
def test_what_cannot_be_served_is_refused_with_its_line(serving: ModuleType, tmp_path: Path) -> None:
    """Biases that are rounded are no linear biases; vLLM's gate lets the model through, so that we can say so."""
    checkpoints = importlib.import_module("checkpoints")
    changes = {"alibi": True, "multi_query": False, "parallel_attn": False, "max_position_embeddings": 1024}
    checkpoints.MODELS["rounded"] = ("FalconForCausalLM", NARROW | changes)
    checkpoints.write(tmp_path, "rounded")
    answer = serving.serve(tmp_path)
    assert "not linear in the distance" in answer["error"]
    assert "modeling_falcon.py:" in answer["error"]
