"""Wrong versions of our own plan are caught, every one; what a proof lets pass is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from hfspeed.cli import verify
from hfspeed.planner import own_mutants as own
from hfspeed.planner.decide import small_plan
from hfspeed.planner.load import Subject

CONFIG = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "vocab_size": 128, "max_position_embeddings": 128, "num_hidden_layers": 2, "moe_intermediate_size": 32,
    "num_experts": 4, "num_experts_per_tok": 2, "mlp_only_layers": [1],
}  # fmt: skip


@pytest.fixture(scope="module")
def small():
    return small_plan(Subject("moe", None, Qwen3MoeConfig(**CONFIG), Qwen3MoeForCausalLM, Path("moe.py")))


@pytest.mark.slow
def test_every_kind_of_op_is_changed_and_every_change_is_caught(small) -> None:
    plan, study = small
    words = {mutant.what.rpartition(": ")[2] for mutant in own.own_mutants(plan)}
    assert words >= {
        "column instead of row", "not split", "a nearly equal activation", "eps twice as large", "another scale",
        "a window one longer", "another layout of pairs", "gate and value exchanged", "weighs the other end",
    }  # fmt: skip
    assert all(mutant.plan != plan for mutant in own.own_mutants(plan))
    count, alive = own.survivors(plan, study.fresh)
    assert count >= 20
    assert [mutant.what for mutant in alive] == []


def test_what_is_not_caught_is_told(small, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    plan, study = small
    monkeypatch.setattr(own, "prove", lambda *_, **__: [])
    measured = [one.what for one in own.survivors(plan, study.fresh)[1]]
    assert not [what for what in measured if "experts: " in what]  # running the experts alone still shows them
    assert any("a window one longer" in what for what in measured)
    monkeypatch.setattr(own, "_measured_otherwise", lambda *_: False)
    assert not verify._caught(plan, study)
    out = capsys.readouterr().out.splitlines()
    count = len(list(own.own_mutants(plan)))
    assert out[0] == f"wrong plans caught, of what is served: 0 of {count}"
    assert len(out) == count + 1
    assert all(line.startswith("  not caught: model") or "lm_head" in line for line in out[1:])
