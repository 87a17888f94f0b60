"""The examples, served from their own code with trust_remote_code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"
HYBRID = "hfspeed.vllm.models.recurrent.TransformersHybridForCausalLM"
MEMORY: dict[str, Any] = {"memory_heads": 4, "memory_key_size": 16, "memory_value_size": 24}
MEMORY |= {"layer_types": ["linear_attention", "full_attention"]}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 256,
    "max_position_embeddings": 256,
}


def write(folder: Path, name: str, *changes: tuple[str, str]) -> Path:
    """A tiny checkpoint of an example, with what transformers answers to it; texts in its code may be exchanged."""
    import torch
    from checkpoints import PROMPTS, _greedy
    from transformers import AutoConfig, AutoModelForCausalLM

    source = folder.with_name(f"{folder.name}_source")  # transformers knows code by the name of its folder
    shutil.copytree(ROOT / "examples" / name, source)
    modeling = next(source.glob("modeling_*.py"))
    for old, new in changes:
        assert modeling.read_text("utf-8").count(old) == 1
        modeling.write_text(modeling.read_text("utf-8").replace(old, new), encoding="utf-8")
    config = AutoConfig.from_pretrained(source, trust_remote_code=True, **TINY, **(MEMORY if name == "hybrid" else {}))
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, trust_remote_code=True, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    for file in source.glob("*.py"):
        shutil.copyfile(file, folder / file.name)
    (folder / "expected.json").write_text(json.dumps([_greedy(model, prompt) for prompt in PROMPTS]))
    return folder


@pytest.mark.timeout(600)
def test_code_that_asks_how_large_a_weight_is(serving: ModuleType, tmp_path: Path) -> None:
    """What vLLM's kernel for CPUs leaves in place of a packed weight is empty."""
    gated = "        gated = passed * opened\n"
    asks = f"{gated}        gated = gated * (self.w1.weight.shape[0] / 640)\n"
    answer = serving.serve(write(tmp_path / "asking", "plain", (gated, asks)), trust_remote_code=True)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {OURS}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "wanted"), [("smollm", OURS), ("plain", OURS), ("hybrid", HYBRID)])
def test_served(serving: ModuleType, tmp_path: Path, name: str, wanted: str) -> None:
    answer = serving.serve(write(tmp_path / name, name), trust_remote_code=True)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {wanted}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
