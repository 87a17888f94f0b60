"""A right plan is proven to the last digits, and every wrong one is caught, at the module where it is wrong."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace

import pytest
import torch

from hfspeed.errors import PlanError, RefusedError
from hfspeed.plan import Attention, Column, Embed, Gated, Heads, Norm, Row, Stacked, Weight, Whole, laws
from hfspeed.planner.contest import LONGEST, prompts
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.prove import prove, prove_module
from hfspeed.refusal import Reason

FAMILIES = ("llama", "gemma2", "olmo2")
LAYER = "model.layers.1"


@pytest.fixture(scope="module", params=[*FAMILIES, "llama, not fused"])
def subject(request, hand):
    torch.set_num_threads(1)
    family, _, loose = request.param.partition(",")
    model = hand.author(family, num_hidden_layers=2)
    plan = hand.plan_of(family, model)
    plan = hand.unfused(plan) if loose else plan
    return request.param, model, plan, hand.emitted(model, plan)


def test_a_right_plan_is_proven_on_every_rank_and_stage(subject):
    _, model, plan, classes = subject
    before = {name: value.clone() for name, value in model.state_dict().items()}
    proofs = prove(plan, model, classes, ranks=(1, 2), stages=(1, 2))
    assert all(proof.error < 1e-12 for proof in proofs)
    laws.verify(plan.with_proofs(*proofs), ranks=2, stages=2, proven=True)
    claims = [proof.claim for proof in proofs]
    assert len(claims) == len(set(claims))
    assert {"hidden states", "logits", "the wrapper, row by row"} <= set(claims)
    assert all("ranks 1 2, stages 1 2" in proof.method for proof in proofs)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())


def test_in_float32_too(subject):
    _, model, plan, classes = subject
    proofs = prove(plan, model, classes, ranks=(2,), stages=(1,), dtype=torch.float32)
    assert all(1e-9 < proof.error < 1e-5 for proof in proofs if proof.claim == "hidden states")


def test_a_window_beyond_every_prompt_is_refused_by_name(subject):
    _, _, plan, _ = subject
    far = tuple(replace(op, window=LONGEST) if isinstance(op, Attention) else op for op in plan.ops)
    with pytest.raises(RefusedError, match=f"{plan.architecture}.*\n.*self_attn: a window or chunk of {LONGEST}"):
        prompts(replace(plan, ops=far))


def _mutants(op):
    """Wrong versions of an op, each with a word about it."""
    match op:
        case Column():
            yield "whole instead of column", Whole(op.path, op.inputs, op.outputs, op.bias)
            yield "row instead of column", Row(op.path, op.inputs, op.outputs, op.bias)
        case Row():
            yield "column instead of row", Column(op.path, op.inputs, op.outputs, op.bias, 4)
            yield "whole instead of row", Whole(op.path, op.inputs, op.outputs, op.bias)
        case Heads() | Stacked():
            yield "not split", replace(op, split=False)
        case Gated():
            yield "another activation", replace(op, act="gelu" if op.act != "gelu" else "silu")
            yield "a nearly equal activation", replace(op, act="gelu" if op.act == "gelu_tanh" else "gelu_tanh")
        case Norm():
            yield "eps twice as large", replace(op, eps=2 * op.eps)
            yield "another kind of weight", replace(op, weight="plain" if op.weight == "one_plus" else "one_plus")
            if op.units:
                yield "norm of a share", replace(op, units=0)
        case Attention():
            yield "another scale", replace(op, scale=op.scale * 1.0001)
            yield "not split", replace(op, split=False)
            yield "a window too many", replace(op, window=3 if op.window is None else None)
            yield "a window one longer", replace(op, window=(op.window or 8) + 1)
            yield "another softcap", replace(op, softcap=None if op.softcap else 30.0)
        case Embed():
            yield "another scale", replace(op, scale=op.scale * 1.001)


def _named(plan):
    inside, chosen = f"{plan.stages.layers}.", f"{plan.stages.layers}.1."
    for number, op in enumerate(plan.ops):
        if op.path.startswith(chosen) or not op.path.startswith(inside):
            for word, wrong in _mutants(op):
                yield f"{op.path}: {word}", replace(plan, ops=(*plan.ops[:number], wrong, *plan.ops[number + 1 :]))


@pytest.mark.slow
def test_every_wrong_op_is_caught(subject):
    _, model, plan, classes = subject
    verdicts = {word: _verdict(wrong, model, classes) for word, wrong in _named(plan)}
    assert len(verdicts) >= 18
    assert [word for word, verdict in verdicts.items() if verdict is None] == []
    for word, verdict in verdicts.items():
        blamed, place = verdict.module, word.split(":")[0]
        assert place.startswith(blamed) or blamed.startswith(place.rpartition(".")[0]), (word, str(verdict))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "phi3", "gpt_neox", "cohere2", "granite"])
def test_every_wrong_op_of_a_real_plan_is_caught(family):
    from hfspeed.emit import emitted
    from hfspeed.planner.decide import small_plan
    from hfspeed.planner.load import load

    plan, small = small_plan(load(family))
    classes = emitted(plan)
    verdicts = {}
    for word, wrong in _named(plan):
        if not plan.tensor and ("split" in word or "instead of" in word):
            continue  # on one rank these are the same
        verdicts[word] = _verdict(wrong, small.model, classes)
    assert len(verdicts) > 5
    assert [word for word, verdict in verdicts.items() if verdict is None] == []


def _verdict(plan, model, classes) -> Mismatch | None:
    try:
        prove(plan, model, classes, ranks=(1, 2), stages=(1,))
    except Mismatch as caught:
        return caught
    return None


def test_swapped_weights_are_caught_by_numbers_and_by_law(subject):
    name, model, plan, classes = subject
    if name not in FAMILIES:
        pytest.skip("it has no parts to swap")
    turn = {1: 2, 2: 1}
    at = f"{LAYER}.self_attn.qkv_proj.weight"
    weights = tuple(
        Weight(w.source, w.target, turn.get(w.part, w.part)) if w.target == at else w for w in plan.weights
    )
    wrong = replace(plan, weights=weights)
    with pytest.raises(Mismatch) as caught:
        prove(wrong, model, classes, ranks=(1,), stages=(1,))
    assert caught.value.module.startswith(f"{LAYER}.self_attn")
    assert caught.value.refusal.reason is Reason.NUMBERS_DIFFER
    assert caught.value.how == "1 rank, 1 stage, prompts alone"
    with pytest.raises(PlanError, match=r"is filled by .*v_proj"):
        laws.verify(wrong)


def test_a_forward_that_ignores_positions_is_caught_when_packed(hand):
    model = hand.author("llama", num_hidden_layers=2)
    plan = hand.plan_of("llama", model)
    *others, decoder = plan.forwards
    text = decoder.text.replace("if position_ids is None:", "if True:")
    assert text != decoder.text
    wrong = replace(plan, forwards=(*others, replace(decoder, text=text)))
    with pytest.raises(Mismatch) as caught:
        prove(wrong, model, hand.emitted(model, wrong), ranks=(1,), stages=(1,))
    assert caught.value.how.endswith("packed and continued token by token")
    assert caught.value.module == "model.rotary_emb"


def test_a_value_lost_at_a_cut_is_caught(hand):
    model = hand.author("gemma2", num_hidden_layers=2)
    plan = hand.plan_of("gemma2", model)
    *others, decoder = plan.forwards
    text = decoder.text.replace("hidden_states = intermediate", "hidden_states = intermediate * 1.01")
    wrong = replace(plan, forwards=(*others, replace(decoder, text=text)))
    prove(wrong, model, hand.emitted(model, wrong), ranks=(1,), stages=(1,))
    with pytest.raises(Mismatch, match="1 rank, 2 stages"):
        prove(wrong, model, hand.emitted(model, wrong), ranks=(1,), stages=(1, 2))


def test_a_wrapper_that_mixes_rows_is_caught(hand):
    model = hand.author("llama", num_hidden_layers=2)
    plan = hand.plan_of("llama", model)

    class Mixing(torch.nn.Linear):
        def forward(self, value):
            return super().forward(value - value.mean(1, keepdim=True))

    model.lm_head.__class__ = Mixing
    with pytest.raises(Mismatch) as caught:
        prove(plan, model, hand.emitted(model, plan))
    assert caught.value.refusal.reason is Reason.WRAPPER_NOT_ROWWISE


def test_what_the_plan_rules_out_is_left_out_and_what_it_cannot_do_is_told(hand):
    model = hand.author("llama", num_hidden_layers=2)
    plan = hand.plan_of("llama", model)
    whole = replace(plan, stages=None, forwards=plan.forwards[:-1])
    assert "stages 1," in prove(whole, model, hand.emitted(model, whole), ranks=(1,), stages=(1, 2))[0].method
    with pytest.raises(PlanError, match="cannot be split over 3 ranks"):
        prove(plan, model, hand.emitted(model, plan), ranks=(1, 3))


def test_an_error_names_the_module_where_it_stopped(subject):
    _, model, plan, classes = subject
    ops = tuple(
        replace(op, inputs=op.inputs, outputs=op.outputs + 1) if op.path == f"{LAYER}.mlp.down_proj" else op
        for op in plan.ops
    )
    with pytest.raises(Mismatch, match="the author's weights are") as caught:
        prove(replace(plan, ops=ops), model, classes, ranks=(1,), stages=(1,))
    assert caught.value.refusal.reason is Reason.CANNOT_RUN
    assert math.isinf(caught.value.error)


def test_one_module_alone(hand):
    model = hand.author("llama", num_hidden_layers=2)
    value = torch.randn(1, 5, 48)
    at = "model.layers.0.mlp"
    column = [Column(f"{at}.{name}", 48, 40, False, 40) for name in ("gate_proj", "up_proj")]
    plan = replace(
        hand.plan_of("llama", model),
        ops=(*column, Row(f"{at}.down_proj", 40, 48, False)),
        weights=tuple(
            Weight(f"{at}.{name}.weight", f"{at}.{name}.weight") for name in ("gate_proj", "up_proj", "down_proj")
        ),
        forwards=(),
    )
    (proof,) = prove_module(plan, model, at, (value,), {}, ranks=(1, 2, 4))
    assert proof.error < 1e-12
    assert proof.claim == f"module {at}"
    wrong = dataclasses.replace(plan, ops=(*column, Whole(f"{at}.down_proj", 40, 48, False)))
    assert prove_module(wrong, model, at, (), {"x": value}, ranks=(1,))
    with pytest.raises(Mismatch) as caught:
        prove_module(wrong, model, at, (value,), {}, ranks=(1, 2))
    assert caught.value.module == f"{at}.down_proj"
