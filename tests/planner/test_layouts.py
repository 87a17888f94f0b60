"""Whole models whose weights do not lie as the kernels want them: packed, turned, in branches, in sibling modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hfspeed.plan import Column, Heads, Plan, Row, Stacked, laws
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load

SMALL: dict[str, Any] = {
    "hidden_size": 128, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 250, "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
OLD: dict[str, Any] = {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 250, "n_positions": 256}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def planned(folder: Path, family: str, **changes: Any) -> Plan:
    """The plan of a small model; it can be built on four ranks."""
    config = {"model_type": family, **changes}
    if "architectures" not in config:
        from transformers import AutoConfig, AutoModelForCausalLM

        made = AutoConfig.for_model(family)
        config["architectures"] = [AutoModelForCausalLM._model_mapping[type(made)].__name__]
    (folder / "config.json").write_text(json.dumps(config))
    plan = decide(load(str(folder), trust_remote_code=True))
    assert plan.tensor
    laws.verify(plan, ranks=4, proven=True)
    return plan


def op_at(plan: Plan, path: str) -> Any:
    return next(op for op in plan.ops if op.path == path)


def text_of(plan: Plan, base: str) -> str:
    return next(forward.text for forward in plan.forwards if forward.base == base)


def test_packed_in_slices(tmp_path: Path) -> None:
    plan = planned(tmp_path, "phi3", **SMALL)
    assert op_at(plan, "model.layers.0.self_attn.qkv_proj") == Heads(
        "model.layers.0.self_attn.qkv_proj", ("qkv_proj",), 128, 4, 2, 32, 32, bias=False, split=True
    )
    assert "query_pos" not in text_of(plan, "Phi3Attention")


def test_packed_in_other_orders(tmp_path: Path) -> None:
    (tmp_path / "modeling_turned.py").write_text((Path(__file__).parent / "turned.py").read_text("utf-8"))
    remote = {"AutoModelForCausalLM": "modeling_turned.TurnedForCausalLM"}
    plan = planned(tmp_path, "phi3", **SMALL, auto_map=remote, architectures=["TurnedForCausalLM"])
    heads = op_at(plan, "model.layers.1.self_attn.qkv_proj")
    assert (heads.split, heads.rows) == (True, ((128, 256, 1), (64, 128, 1), (0, 64, 1)))
    both = op_at(plan, "model.layers.1.mlp.gate_up_proj")
    assert isinstance(both, Stacked)
    assert (both.split, both.rows) == (True, ((1, 192, 2), (0, 191, 2)))


def test_matrices_kept_the_other_way_round(tmp_path: Path) -> None:
    plan = planned(tmp_path, "gpt2", **OLD)
    heads = op_at(plan, "transformer.h.1.attn.c_attn")
    assert isinstance(heads, Heads)
    assert heads.split
    assert isinstance(op_at(plan, "transformer.h.1.attn.c_proj"), Row)
    assert isinstance(op_at(plan, "transformer.h.1.mlp.c_fc"), Column)
    turned = {weight.source for weight in plan.weights if weight.transposed}
    names = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert turned == {f"transformer.h.{layer}.{name}.weight" for layer in (0, 1) for name in names}


@pytest.mark.parametrize("one", [True, False], ids=["one key head", "head by head"])
def test_packed_behind_branches(tmp_path: Path, one: bool) -> None:
    plan = planned(tmp_path, "gpt_bigcode", **OLD, multi_query=one)
    op = op_at(plan, "transformer.h.1.attn.c_attn")
    assert (op.kv_heads, op.split) == (1, True) if one else op == Column(op.path, 128, 384, True, 4)


def test_calls_in_branches(tmp_path: Path) -> None:
    plan = planned(tmp_path, "biogpt", **SMALL)
    assert op_at(plan, "biogpt.layers.1.self_attn.qkv_proj").parts == ("q_proj", "k_proj", "v_proj")
    text = text_of(plan, "BioGptAttention")
    assert text.count("if current_states is not hidden_states:") == 1


def test_pairs_in_sibling_modules(tmp_path: Path) -> None:
    plan = planned(tmp_path, "bert", **SMALL, is_decoder=True)
    layer = "bert.encoder.layer.1"
    assert op_at(plan, f"{layer}.attention.self.qkv_proj").split
    assert isinstance(op_at(plan, f"{layer}.attention.output.dense"), Row)
    assert isinstance(op_at(plan, f"{layer}.intermediate.dense"), Column)
    assert isinstance(op_at(plan, f"{layer}.output.dense"), Row)
