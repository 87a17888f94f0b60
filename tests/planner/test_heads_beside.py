"""Heads that get something whole as well, and packed heads behind a helper, go over ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from hfspeed.plan import Attention, Heads, Plan, Row
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject

LATENT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 128,
    "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 40, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32,
    "v_head_dim": 32, "head_dim": 16,
}  # fmt: skip
PACKED: dict[str, dict[str, Any]] = {
    "FalconForCausalLM": {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 128},
    "MptForCausalLM": {"d_model": 64, "n_heads": 4, "n_layers": 2, "vocab_size": 128},
}


def plan(architecture: str, **values: Any) -> Plan:
    torch.set_num_threads(1)
    cls = getattr(transformers, architecture)
    return decide(Subject(architecture, None, cls.config_class(**values), cls, None))  # type: ignore[arg-type]


def test_latents_stay_whole_and_heads_are_split() -> None:
    found = plan("MiniCPM3ForCausalLM", **LATENT)
    assert all(op.split for op in found.ops if isinstance(op, Attention))
    split = {op.path.rpartition(".")[2] for op in found.ops if getattr(op, "units", 0) == 4}
    assert {"q_b_proj", "kv_b_proj"} <= split
    assert {"self_attn.o_proj"} <= {op.path.split(".", 3)[3] for op in found.ops if isinstance(op, Row)}
    assert not any("q_a_proj" in op.path and getattr(op, "units", 0) for op in found.ops)


@pytest.mark.parametrize("architecture", PACKED)
def test_packed_heads_are_split_under_the_code_that_cuts_them(architecture: str) -> None:
    found = plan(architecture, **PACKED[architecture])
    assert all(op.split for op in found.ops if isinstance(op, Attention))
    packed = [op for op in found.ops if isinstance(op, Heads)]
    assert packed
    assert all(op.split and not op.rows for op in packed)
