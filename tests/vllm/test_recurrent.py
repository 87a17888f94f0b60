"""Models whose sequences have states, in vLLM: in chunks, from the prefix cache, compiled, in stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Checkpoint = Callable[[str], Path]
HYBRID = "hfspeed.vllm.models.recurrent.TransformersHybridForCausalLM"
TWO = {"distributed_executor_backend": "mp"}
THREADS = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
ATTENTION_FREE = "hfspeed.vllm.models.recurrent.TransformersAttentionFreeForCausalLM"


def right(serving: ModuleType, answer: dict[str, Any], wanted: str) -> None:
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {wanted}
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "wanted"),
    [("mamba2", ATTENTION_FREE), ("falcon_mamba", ATTENTION_FREE), ("lfm2", HYBRID), ("bamba", HYBRID)],
)
def test_eager(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    right(serving, serving.serve(checkpoint(name)), wanted)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "wanted"), [("mamba2", ATTENTION_FREE), ("bamba", HYBRID)])
def test_in_chunks(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    """Prompts of 60, 23 and 5 tokens in steps of 16: pieces that go on, mixed with single tokens of others."""
    settings = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "enable_prefix_caching": False}
    right(serving, serving.serve(checkpoint(name), **settings), wanted)


@pytest.mark.timeout(600)
def test_from_the_prefix_cache(serving: ModuleType, checkpoint: Checkpoint) -> None:
    """States are copied from where an earlier request left them."""
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "enable_prefix_caching": True, "block_size": 32}
    answer = serving.serve(checkpoint("bamba"), repeats=2, **settings)
    right(serving, answer, HYBRID)
    assert answer["cached"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled(serving: ModuleType, checkpoint: Checkpoint) -> None:
    """Compiled code is cut where states are read."""
    right(serving, serving.serve(checkpoint("bamba"), enforce_eager=False), HYBRID)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_stages_compiled(serving: ModuleType, checkpoint: Checkpoint) -> None:
    # without compilation the engine itself stops on two stages on a CPU
    settings: dict[str, Any] = {"pipeline_parallel_size": 2, "enforce_eager": False}
    right(serving, serving.serve(checkpoint("mamba2"), environ=THREADS, **settings, **TWO), ATTENTION_FREE)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "wanted"), [("lfm2", HYBRID), ("mamba2", ATTENTION_FREE), ("bamba", HYBRID)])
def test_two_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    """Mixers go over the ranks by channels, or by heads with a norm over all of them, or over each."""
    right(serving, serving.serve(checkpoint(name), environ=THREADS, tensor_parallel_size=2, **TWO), wanted)


@pytest.mark.timeout(600)
def test_speculation_is_refused(serving: ModuleType, checkpoint: Checkpoint) -> None:
    settings = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}}
    answer = serving.serve(checkpoint("mamba2"), **settings)
    assert "cannot be taken back out of a state" in answer["error"]
