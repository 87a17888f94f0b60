"""The three plans are found from code alone, proven on ranks and stages, and a wrong one is told at its line."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

from hfspeed.lint.disk import Disk
from hfspeed.planner.declared_check import check
from hfspeed.planner.load import Subject, load
from hfspeed.planner.looked import config_of, declared_plans, look
from hfspeed.planner.mutants import killed
from hfspeed.planner.styled import derive, prove
from hfspeed.planner.written_plans import foreign, rewritten

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 128, "max_position_embeddings": 128}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96}
EXPERTS = {"moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "n_routed_experts": 8}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 32,
    "num_key_value_heads": 4,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
FAMILIES = {
    "Llama": {},
    "Qwen3": {},
    "Olmo2": {},
    "Phi3": {"pad_token_id": 0},
    "Qwen3Moe": {**EXPERTS, "mlp_only_layers": [1]},
    "DeepseekV3": {**EXPERTS, **LATENT, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "head_dim": 8},
    "GPTNeoX": {},
}
BETTER = {
    "Phi3": {"layers.*.mlp.gate_up_proj": "packed_colwise", "layers.*.mlp.down_proj": "rowwise"},
    "DeepseekV3": {
        "layers.*.self_attn.q_b_proj": "colwise",
        "layers.*.self_attn.kv_a_proj_with_mqa": "mla_kv_a_proj",
        "layers.*.self_attn.kv_b_proj": "colwise",
        "layers.*.self_attn.o_proj": "rowwise",
    },
}
"""Where a plan found from code splits more than the one written by hand: all else is the same."""


@pytest.fixture(scope="module")
def looked():
    torch.set_num_threads(1)
    known = {}

    def look_at(family: str):
        if family not in known:
            config = getattr(transformers, f"{family}Config")(**{**SMALL, **HEADS, **FAMILIES[family]})
            cls = getattr(transformers, f"{family}ForCausalLM")
            seen = look(Subject(family, None, config, cls, Path("x.py")))
            known[family] = seen, derive(seen)
        return known[family]

    return look_at


@pytest.mark.parametrize("family", FAMILIES)
def test_plans_written_by_hand_are_found_from_code_or_bettered(family: str, looked) -> None:
    seen, derived = looked(family)
    hand = declared_plans(config_of(seen))
    assert dict(derived.plans.tp) == {**hand.tp, **BETTER.get(family, {})}
    assert dict(derived.plans.ep) == dict(hand.ep)
    assert list(derived.plans.pp) == list(hand.pp)
    assert all(outcome.equal for _, _, outcome in derived.outcomes)
    assert all(outcome.equal for _, _, outcome in prove(seen, hand))


@pytest.mark.parametrize(("family", "least"), [("Llama", 25), ("Qwen3Moe", 40), ("DeepseekV3", 45), ("GPTNeoX", 18)])
def test_every_wrong_plan_is_caught(family: str, least: int, looked) -> None:
    """What is not wrong says why, and is run as well."""
    seen, derived = looked(family)
    found = killed(seen, derived.plans)
    assert [mutant.what for mutant in found.alive] == []
    assert len(found.caught) >= least
    assert len(found.equivalent) <= 4


def test_what_is_wrong_is_told_at_its_line(looked) -> None:
    seen, derived = looked("Qwen3")
    config = config_of(seen)
    wrong = dict(config.base_model_tp_plan) | {
        "layers.*.mlp.up_proj": "rowwise",
        "layers.*.mlp.nothing": "colwise",
        "layers.*.self_attn.q_norm": "sideways",
    }
    del wrong["layers.*.self_attn.k_proj"]
    right, config.base_model_tp_plan = config.base_model_tp_plan, wrong
    try:
        told = [str(one) for one in check(seen, derived, ranks=(3,))]
    finally:
        config.base_model_tp_plan = right
    assert any("`layers.*.mlp.nothing` in base_model_tp_plan matches no module" in one for one in told)
    assert any("'sideways' is no style" in one for one in told)
    assert any("holds `layers.*.self_attn.k_proj` whole; colwise splits it" in one for one in told)
    assert all("configuration_qwen3.py:" in one for one in told)


def test_a_split_that_meets_the_wrong_reader_is_told(looked) -> None:
    seen, derived = looked("Llama")
    config = config_of(seen)
    right = config.base_model_tp_plan
    config.base_model_tp_plan = dict(right) | {"layers.*.mlp.down_proj": "rowwise_split_input"}
    try:
        told = [one for one in check(seen, derived) if "down_proj" in one.found]
    finally:
        config.base_model_tp_plan = right
    assert [one.place.line for one in told if one.place] != []
    assert "`layers.*.mlp.down_proj` (rowwise_split_input)" in told[0].found
    assert told[0].found.endswith("; with rowwise for `layers.*.mlp.down_proj` it is right")
    assert told[0].module == "layers.*.mlp.down_proj"  # the entry that is wrong, not the first of those that read it
    config.base_model_tp_plan = dict(right) | {"layers.*.mlp.down_proj": "rowwise_split_input"}
    try:
        assert len([one for one in check(seen, derived, ranks=(2, 4)) if "down_proj" in str(one)]) == 1
    finally:
        config.base_model_tp_plan = right
    assert not check(seen, derived, ranks=(2,), stages=(2,))


def test_sizes_that_do_not_divide_are_told(looked) -> None:
    seen, derived = looked("Llama")
    told = [str(one) for one in check(seen, derived, ranks=(4,))]
    assert len(told) == 1
    assert "4 ranks: model.layers.*.self_attn: 4 heads, 2 key heads; by transformers' styles" in told[0]
    assert "in layers.*.self_attn.q_proj" in told[0]
    told = [str(one) for one in check(seen, derived, ranks=(3,))]
    assert all("3 ranks: model.layers.[0-1]." in one and "invalid" not in one for one in told)
    assert any("4 heads, 2 key heads" in one for one in told)
    assert "does-not-divide" in told[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(EXAMPLES / "mixture", tmp_path / "mixture")
    return tmp_path / "mixture"


def test_plans_are_written_into_the_users_own_file_and_then_nothing_is_missing(folder: Path) -> None:
    subject = load(str(folder), trust_remote_code=True)
    seen = look(subject)
    derived = derive(seen)
    assert set(derived.plans.tp.values()) >= {"colwise", "rowwise"}
    made = rewritten(seen, derived, Disk().text)
    assert made.file == folder / "configuration_mixture.py"
    assert foreign(subject, made.file) == ""
    assert "belongs to an installed package" in foreign(replace(subject, folder=folder.parent / "elsewhere"), made.file)
    made.file.write_text(made.after, "utf-8")
    again = look(load(str(folder), trust_remote_code=True))
    found = derive(again)
    assert declared_plans(config_of(again)).tp == dict(derived.plans.tp)
    assert rewritten(again, found, Disk().text).after == made.after
    assert check(again, found) == []
