"""Families by their authors' forwards: every token and log probability is transformers' own."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
FAMILIES = [
    "llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "olmo",
    "olmo2", "olmo3", "smollm3", "stablelm", "starcoder2", "phi", "glm", "glm4", "exaone4", "helium",
    "seed_oss", "arcee", "cohere", "cohere2", "gpt_neox", "nemotron", "apertus", "persimmon",
    "hunyuan_v1_dense", "ernie4_5",
    # encoders as decoders, decoders without an encoder; the heads of bart are narrower than any kernel's
    "roberta", "bart", "rembert",
    # attention twice in one module
    "diffllama",
]  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES)
def test_exact(serving: ModuleType, tmp_path: Path, family: str) -> None:
    """Served by hfspeed's class, in float32, as eager transformers answers."""
    importlib.import_module("families").write(tmp_path, family)
    answer = serving.serve(tmp_path)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {OURS}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
