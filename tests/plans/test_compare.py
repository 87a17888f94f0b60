"""Verdicts on plans by hand: the same, one that splits less, one that is wrong, one that names what is not there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM

from hfspeed.planner.load import Subject
from hfspeed.planner.looked import config_of, look
from hfspeed.planner.styled import derive

sys.path.insert(0, str(Path(__file__).parent))
import compare
import declaring
import page

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
}
FOUND = {
    "layers.*.self_attn.qkv_proj": "colwise_gather_output",
    "layers.*.self_attn.o_proj": "rowwise_split_input",
    "layers.*.mlp.gate_up_proj": "packed_colwise",
    "layers.*.mlp.down_proj": "rowwise",
}
HAND = {
    "the same": (FOUND, compare.SAME),
    "splits less": ({name: style for name, style in FOUND.items() if "mlp" not in name}, compare.BETTER),
    "computes something else": (FOUND | {"layers.*.mlp.gate_up_proj": "colwise"}, compare.BETTER),
    "names what is not there": (FOUND | {"layers.*.mlp.gate_proj": "colwise"}, compare.EQUIVALENT),
}


@pytest.fixture(scope="module")
def looked():
    torch.set_num_threads(1)
    seen = look(Subject("phi", None, Phi3Config(**SIZES), Phi3ForCausalLM, Path("x.py")))
    return seen, derive(seen)


@pytest.mark.parametrize("what", HAND)
def test_verdicts(what: str, looked) -> None:
    seen, derived = looked
    plan, wanted = HAND[what]
    config_of(seen).base_model_tp_plan = plan
    result = compare.compared(seen, derived)
    assert result["tp"]["verdict"] == wanted
    assert result["pp"]["verdict"] == compare.SAME
    told = page.rendered({"Phi3Config": {"kinds": result}})
    assert "| tensor parallel | 1 |" in told
    assert (f"## {wanted.capitalize()}" in told) == (wanted != compare.SAME)


def test_a_plan_that_splits_more_and_is_right_counts_against_ours(looked) -> None:
    seen, derived = looked
    config_of(seen).base_model_tp_plan = dict(FOUND)
    less = type(derived)(type(derived.plans)(tp={"layers.*.mlp.down_proj": "rowwise_split_input"}), derived.outcomes)
    assert compare.compared(seen, less)["tp"]["verdict"] == compare.WORSE


def test_every_configuration_with_a_plan_is_looked_at() -> None:
    found = declaring.configurations()
    assert len([one for one in found.values() if getattr(one, "base_model_tp_plan", None)]) >= 100
    assert {"LlamaConfig", "Qwen2VLTextConfig", "Gemma4VisionConfig"} <= set(found)
