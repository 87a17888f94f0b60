"""Models whose sequences have states, in vLLM: in chunks, from the prefix cache, compiled, in stages."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
@pytest.mark.parametrize(("name", "wanted"), [("mamba2", ATTENTION_FREE), ("bamba", HYBRID), ("qwen3_next", HYBRID)])
def test_in_chunks(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    """Prompts of 60, 23 and 5 tokens in steps of 16: pieces that go on, mixed with single tokens of others."""
    settings = {"max_num_batched_tokens": 16, "max_num_seqs": 4, "enable_prefix_caching": False}
    right(serving, serving.serve(checkpoint(name), **settings), wanted)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["bamba", "lfm2"])
def test_from_the_prefix_cache(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    """States are copied from where an earlier request left them."""
    settings = {"max_num_batched_tokens": 64, "max_num_seqs": 4, "enable_prefix_caching": True, "block_size": 32}
    answer = serving.serve(checkpoint(name), repeats=2, **settings)
    right(serving, answer, HYBRID)
    assert answer["cached"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["bamba", "lfm2"])
def test_thrown_out_and_begun_again(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    """Twenty requests in room for a few get what each gets alone; states of those that are thrown out are gone.

    A sequence without attention has one page from its first token on, so none is thrown out.
    """
    settings = {"requests": 20, "tokens": 40, "num_gpu_blocks_override": 16, "max_model_len": 256}
    answer = serving.serve(checkpoint(name), ask=importlib.import_module("crowding").answers, **settings)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert set(answer["served"]) == {HYBRID}
    assert answer["differing"] == []
    assert answer["apart"] < serving.TOLERANCE
    assert answer["preempted"] > 0


FORMER = {"conv_dim": 64, "conv_dim_out": 64, "block_dim": 64, "block_ff_dim": 96, "block_multiple_of": 1}
FORMER |= {"block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": False, "block_use_swiglu": True}
"""What native vLLM looks for in the configuration of lfm2, and transformers writes no longer."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["qwen3_next", "mamba2", "lfm2"])
def test_states_take_no_more_than_native(serving: ModuleType, checkpoint: Checkpoint, name: str) -> None:
    """Bytes of each layer's page, before and after it is filled up, and how many pages there are."""
    settings = {"dtype": "bfloat16", "load_format": "dummy", "mamba_ssm_cache_dtype": "float32", "ask": pages}
    ours = serving.serve(checkpoint(name), **settings)
    former = {"hf_overrides": FORMER} if name == "lfm2" else {}
    native = serving.serve(checkpoint(name), model_impl="vllm", **former, **settings)
    for answer in (ours, native):
        assert "error" not in answer, answer.get("trace") or answer["error"]
    assert ours["served"][0].startswith("hfspeed.vllm.")
    assert native["served"][0].startswith("vllm.")
    assert ours["states"] == native["states"]
    assert ours["states"]
    assert ours["count"] == native["count"]


def pages(checkpoint: Path, **settings: Any) -> dict[str, Any]:
    """``states``: bytes of each layer's states, and of its page; ``count``: how many pages there are."""
    import serving
    from vllm import LLM

    llm = LLM(model=str(checkpoint), **(serving.DEFAULTS | settings))
    (specs,) = llm.collective_rpc("get_kv_cache_spec")
    found = []
    for one in specs.values():
        if type(one).__name__ == "MambaSpec":
            sizes = (math.prod(shape) * dtype.itemsize for shape, dtype in zip(one.shapes, one.dtypes, strict=True))
            found.append((sum(sizes), one.page_size_bytes))
    count = llm.llm_engine.vllm_config.cache_config.num_gpu_blocks
    return {"served": llm.apply_model(serving.served), "states": found, "count": count}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled(serving: ModuleType, checkpoint: Checkpoint) -> None:
    """Compiled code is cut where states are read."""
    right(serving, serving.serve(checkpoint("bamba"), enforce_eager=False), HYBRID)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "wanted"), [("mamba2", ATTENTION_FREE), ("bamba_deep", HYBRID), ("lfm2_deep", HYBRID)]
)
def test_two_stages_compiled(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    """Each stage of a hybrid has layers of both kinds."""
    # without compilation the engine itself stops on two stages on a CPU
    settings: dict[str, Any] = {"pipeline_parallel_size": 2, "enforce_eager": False}
    right(serving, serving.serve(checkpoint(name), environ=THREADS, **settings, **TWO), wanted)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "wanted"), [("lfm2", HYBRID), ("mamba2", ATTENTION_FREE), ("bamba", HYBRID)])
def test_two_ranks(serving: ModuleType, checkpoint: Checkpoint, name: str, wanted: str) -> None:
    """Mixers go over the ranks by channels, or by heads with a norm over all of them, or over each."""
    right(serving, serving.serve(checkpoint(name), environ=THREADS, tensor_parallel_size=2, **TWO), wanted)


@pytest.mark.parametrize(("states", "attention"), [(1, 0), (0, 1)])
def test_a_stage_of_one_kind_is_refused(serving: ModuleType, states: int, attention: int) -> None:
    """Before vLLM stops at pages of two sizes."""
    from hfspeed.errors import RefusedError
    from hfspeed.vllm.models.recurrent import check_stage
    from hfspeed.vllm.states import Pages

    class Page(Pages):
        def __init__(self) -> None:
            """Belongs to no configuration."""

    layers: dict[str, Any] = {f"s{n}": Page() for n in range(states)} | {f"a{n}": object() for n in range(attention)}
    config: Any = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=layers),
        parallel_config=SimpleNamespace(pipeline_parallel_size=2),
        model_config=SimpleNamespace(model="m"),
    )
    with pytest.raises(RefusedError, match="only layers with " + ("states" if states else "attention")):
        check_stage(config)
    config.compilation_config.static_forward_context |= {"s": Page(), "a": object()}
    check_stage(config)
    config.compilation_config.static_forward_context = {"a": object()}
    config.parallel_config.pipeline_parallel_size = 1
    check_stage(config)


@pytest.mark.timeout(600)
def test_speculation_is_refused(serving: ModuleType, checkpoint: Checkpoint) -> None:
    settings = {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 3}}
    answer = serving.serve(checkpoint("mamba2"), **settings)
    assert "cannot be taken back out of a state" in answer["error"]
