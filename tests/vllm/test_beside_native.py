"""What a plan cannot say by itself, adapters and quantised weights: as vLLM's native class does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

OURS = "hfspeed.vllm.models.causal.TransformersForCausalLM"

Checkpoint = Callable[[str], Path]


def both(serving: ModuleType, folder: Path, **settings: Any) -> tuple[Any, Any]:
    """The answers of the native class and of ours."""
    native = serving.serve(folder, **settings, model_impl="vllm")
    ours = serving.serve(folder, **settings)
    for answer in (native, ours):
        assert "error" not in answer, answer.get("trace")
    assert ours["served"] == [OURS]
    assert native["served"] == ["vllm.model_executor.models.llama.LlamaForCausalLM"]
    return native["got"], ours["got"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_adapter_over_merged_layers(serving: ModuleType, checkpoint: Checkpoint, tmp_path: Path) -> None:
    import checkpoints

    source = checkpoint("llama")
    checkpoints.adapter(tmp_path / "adapter", source)
    lora: dict[str, Any] = {"enable_lora": True, "max_lora_rank": 8, "lora": str(tmp_path / "adapter")}
    native, ours = both(serving, source, **lora)
    plain = serving.serve(source)["got"]
    for (tokens, logprobs), (wanted, expected), (without, _) in zip(ours, native, plain, strict=True):
        assert tokens == wanted
        assert logprobs == pytest.approx(expected, abs=serving.TOLERANCE)
        assert tokens != without


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_int8_weights_in_merged_layers(serving: ModuleType, checkpoint: Checkpoint, tmp_path: Path) -> None:
    import checkpoints

    checkpoints.quantised(tmp_path / "int8", checkpoint("llama"))
    native, ours = both(serving, tmp_path / "int8", dtype="bfloat16")
    # bfloat16 with rounded activations: the first token's probability says whether scales and parts are right
    for (_, logprobs), (_, expected) in zip(ours, native, strict=True):
        assert logprobs[0] == pytest.approx(expected[0], abs=0.1)
