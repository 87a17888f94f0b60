"""Mixtures of experts in whole engines: fused, spread over ranks, quantised, and as their authors wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

OURS = "hfspeed.vllm.models.mixture.TransformersMoEForCausalLM"
TWO = {"tensor_parallel_size": 2, "distributed_executor_backend": "mp", "environ": {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}}
PLANNER = Path(__file__).parent.parent / "planner"

Checkpoint = Callable[[str], Path]


def right(serving: ModuleType, answer: dict[str, Any], ours: str = OURS) -> None:
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {ours}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen3_moe"])
def test_exact(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    right(serving, serving.serve(checkpoint(name)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_compiled(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    right(serving, serving.serve(checkpoint(name), enforce_eager=False))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss"])
def test_two_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str, whole: bool) -> None:
    """Every expert cut in two; or each rank with its own of 4, or of 5, experts."""
    right(serving, serving.serve(checkpoint(name), enable_expert_parallel=whole, **TWO))


@pytest.fixture(scope="module")
def own_code(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint with its own code, of one of the mixtures of the planner's tests."""
    import sys

    import checkpoints

    sys.path.insert(0, str(PLANNER))
    import fresh_mixtures
    import listed
    import mixtures

    from hfspeed.planner.build import build

    def one(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        source = next(file for file in (mixtures, listed, fresh_mixtures) if hasattr(file, name))
        model_class = getattr(source, name)
        torch.manual_seed(0)
        # built with the planner's attention, which is causal; the code itself leaves masks to its backend
        model = build(model_class, mixtures.MixedConfig(width=128, symbols=256), device="cpu")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.08)
        expected = [checkpoints._greedy(model, prompt) for prompt in checkpoints.PROMPTS]
        model.save_pretrained(folder)
        for file in ("odd_models", "mixtures", "listed", "fresh_mixtures"):
            text = (PLANNER / f"{file}.py").read_text().replace("from odd_models", "from .odd_models")
            (folder / f"{file}.py").write_text(text.replace("from mixtures", "from .mixtures"))
        told = json.loads((folder / "config.json").read_text())
        told["architectures"] = [name]
        told["auto_map"] = {"AutoConfig": "mixtures.MixedConfig", "AutoModelForCausalLM": f"{source.__name__}.{name}"}
        told["num_hidden_layers"], told["num_attention_heads"], told["hidden_size"] = 3, 4, 128
        told["vocab_size"] = 256
        (folder / "config.json").write_text(json.dumps(told))
        (folder / "expected.json").write_text(json.dumps(expected))
        return folder

    return one


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("name", ["SortedForCausalLM", "BiasedForCausalLM", "TwiceForCausalLM"])
def test_code_that_decides_by_values(
    serving: ModuleType, own_code: Callable[[str], Path], name: str, eager: bool
) -> None:
    """A list of experts fused; others by expert, because no kernel clamps so; a block as written; compiled too."""
    answer = serving.serve(own_code(name), trust_remote_code=True, enforce_eager=eager)
    right(serving, answer, "hfspeed.vllm.models.causal.TransformersForCausalLM")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["KeyedForCausalLM", "InlineForCausalLM", "LoudForCausalLM"])
def test_code_in_shapes_of_its_own(serving: ModuleType, own_code: Callable[[str], Path], name: str) -> None:
    """Experts in a dict, in the block itself, and with a factor that no kernel has: what is as written is right too."""
    answer = serving.serve(own_code(name), trust_remote_code=True)
    right(serving, answer, "hfspeed.vllm.models.causal.TransformersForCausalLM")
