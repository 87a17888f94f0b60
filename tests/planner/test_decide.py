"""What a plan says of models that can be served, but not in every way."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Column, Heads, Norm, Plan, Row, Stacked, Whole
from hfspeed.planner.build import build
from hfspeed.planner.decide import decide
from hfspeed.planner.declared import disagreements
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

GATED = "        gated = passed * opened\n"
MIX = "        mixed, _ = run("
LAYER = "decoder.blocks.0"
IMPORT = "from .configuration_plain"
HINT = (IMPORT, f"from hfspeed.hints import attention, decoder_layers, gated_mlp, norm\n\n{IMPORT}")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def ops(plan: Plan, kind: type) -> dict[str, object]:
    return {op.path.removeprefix(f"{LAYER}."): op for op in plan.ops if isinstance(op, kind) and LAYER in op.path}


def reasons(plan: Plan) -> dict[str, set[Reason]]:
    found: dict[str, set[Reason]] = {}
    for refusal in plan.refusals:
        found.setdefault(refusal.module.replace(f"{LAYER}.", ""), set()).add(refusal.reason)
    return found


def test_a_block_that_mixes_its_split_value_stays_whole(tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (GATED, GATED + "        gated = gated.softmax(-1)\n")))
    assert plan.tensor
    assert not ops(plan, Stacked)["expand.gate_up_proj"].split
    assert set(ops(plan, Whole)) == {"expand.w2"}
    assert set(ops(plan, Row)) == {"mixer.wo"}
    assert reasons(plan)["expand"] == {Reason.MIXES_SPLIT}
    assert all(refusal.place is not None for refusal in plan.refusals)


def test_attention_that_mixes_heads_is_whole_on_every_rank(tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, (MIX, "        value = value - value.mean(1, keepdim=True)\n" + MIX)))
    assert plan.tensor
    assert not ops(plan, Heads)["mixer.qkv_proj"].split
    assert not any(op.split for op in ops(plan, Attention).values())
    assert set(ops(plan, Row)) == {"expand.w2"}
    assert not ops(plan, Column)
    assert reasons(plan)["mixer"] == {Reason.MIXES_SPLIT}


def test_a_norm_over_all_heads_is_gathered(tmp_path: Path) -> None:
    changes = [
        ("self.wq(stream).reshape(", "self.query_scale(self.wq(stream)).view("),
        ("query = self.query_scale(query).transpose(1, 2)", "query = query.transpose(1, 2)"),
        ("self.query_scale = Scale(config.head_dim,", "self.query_scale = Scale(config.heads * config.head_dim,"),
    ]
    plan = decide(mutant(tmp_path, *changes))
    assert ops(plan, Norm)["mixer.query_scale"].units == 4
    assert ops(plan, Norm)["mixer.key_scale"].units == 0
    assert plan.tensor
    assert not plan.refusals


def test_a_look_alike_of_a_norm_stays_as_written(tmp_path: Path) -> None:
    plan = decide(mutant(tmp_path, ("(1.0 + self.offset)", "(1.0 + self.offset.tanh())")))
    assert not ops(plan, Norm)
    assert {Reason.NOT_A_NORM} <= reasons(plan)["before"]


def test_fusion_that_would_lose_a_branch_is_refused_with_its_place(tmp_path: Path) -> None:
    branch = "        if self.training:\n            stream = stream * 2\n"
    up = "        passed = self.w3(stream)\n"
    plan = decide(mutant(tmp_path, (up, branch + up)))
    assert set(ops(plan, Column)) == {"expand.w1", "expand.w3"}
    assert reasons(plan)["expand"] == {Reason.INPUT_WRITTEN}
    assert plan.tensor


def test_state_between_layers_rules_out_stages_only(tmp_path: Path) -> None:
    loop = "            stream = block(stream, position_ids, mask=mask, memory=past_key_values, **kwargs)\n"
    kept = "        kept = []\n        for block in self.blocks:\n"
    body = loop + "            stream = stream + sum(kept[:1])\n            kept.append(stream)\n"
    plan = decide(mutant(tmp_path, ("        for block in self.blocks:\n", kept), (loop, body), depth=4))
    assert plan.stages is None
    assert plan.tensor
    assert {refusal.wanted for refusal in plan.refusals} == {"stages"}


def test_the_embedding_read_by_every_layer_rules_out_stages_only(tmp_path: Path) -> None:
    loop = "            stream = block(stream, position_ids, mask=mask, memory=past_key_values, **kwargs)\n"
    plan = decide(mutant(tmp_path, (loop, loop + "            stream = stream + self.table(input_ids)\n")))
    assert plan.stages is None
    assert plan.tensor
    assert any(refusal.wanted == "stages" for refusal in plan.refusals)


HINTS = {
    "@norm": ("class Scale(", True),
    "@attention(query='wq', key='wk', value='wv')": ("class Mixer(", True),
    "@attention(query='wk', key='wq', value='wv')": ("class Mixer(", False),
    "@gated_mlp(gate='w1', up='w3', down='w2')": ("class Expand(", True),
    "@gated_mlp(gate='w3', up='w1', down='w2')": ("class Expand(", False),
    "@decoder_layers('blocks')": ("class PlainModel(", True),
    "@decoder_layers('after')": ("class PlainModel(", False),
    "@attention(query='wq', key='wk', value='no_such')": ("class Mixer(", False),
}


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_must_be_true(hint: str, tmp_path: Path) -> None:
    old, true = HINTS[hint]
    subject = mutant(tmp_path, HINT, (old, f"{hint}\n{old}"))
    if true:
        assert not decide(subject).refusals
        return
    with pytest.raises(RefusedError) as caught:
        decide(subject)
    assert {refusal.reason for refusal in caught.value.refusals} == {Reason.FALSE_HINT}


@pytest.mark.parametrize("hint", ["@norm", "@attention(query='w1', key='w2', value='w3')"])
def test_a_hint_on_the_wrong_class(hint: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as caught:
        decide(mutant(tmp_path, HINT, ("class Expand(", f"{hint}\nclass Expand(")))
    assert {refusal.reason for refusal in caught.value.refusals} == {Reason.FALSE_HINT}


DECLARED = {
    "agrees": (
        {
            "blocks.*.mixer.wq": "colwise", "blocks.*.mixer.wk": "colwise_gather_output",
            "blocks.*.mixer.wo": "rowwise",
            "blocks.*.expand.w1": "colwise", "blocks.*.expand.w2": "rowwise", "after": "sequence_parallel",
        },
        [],
    ),
    "a row that is a column": ({"blocks.*.expand.w3": "rowwise"}, ["declared rowwise, the dataflow says column"]),
    "whole and split": (
        {"blocks.*.mixer.wo": "replicate", "blocks.0.expand.w2": "colwise"},
        ["declared replicate, the dataflow says row", "declared colwise, the dataflow says row"],
    ),
    "no such module": ({"layers.*.mlp": "colwise"}, ["`layers.*.mlp` in base_model_tp_plan matches no module"]),
    "a parameter": ({"blocks.*.before.offset": "replicated_with_grad_allreduce"}, []),
    "a style unknown": ({"blocks.*.mixer.wq": "some_new_style"}, []),
}  # fmt: skip


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    subject = mutant(tmp_path_factory.mktemp("declared"))
    return build(subject.model_class, subject.config), decide(subject)


@pytest.mark.parametrize("what", DECLARED)
def test_a_plan_declared_by_hand(what: str, planned) -> None:
    declared, wanted = DECLARED[what]
    assert isinstance(declared, Mapping)
    model, plan = planned
    model.decoder.config.base_model_tp_plan = declared
    found = disagreements(model, plan)
    assert [refusal.found.endswith(end) for refusal, end in zip(found, wanted, strict=True)] == [True] * len(wanted)
    assert {refusal.reason for refusal in found} <= {Reason.PLAN_DISAGREES}
