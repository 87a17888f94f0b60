"""The laws accept a lawful plan, and each of them is broken by something."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from hfspeed.errors import PlanError
from hfspeed.plan import Attention, Column, Keep, Norm, Proof, Row, Tie, Weight, Whole, laws

AT = "model.layers.0"


def _with(plan, path, **changes):
    """The plan with fields of the op at ``path`` changed."""
    return replace(plan, ops=tuple(replace(op, **changes) if op.path == path else op for op in plan.ops))


def _without(plan, path):
    return replace(plan, ops=tuple(op for op in plan.ops if op.path != path))


def _whole(plan, chosen):
    """The plan with the chosen linears held in full."""
    return replace(
        plan, ops=tuple(Whole(o.path, o.inputs, o.outputs, o.bias) if chosen(o) else o for o in plan.ops)
    )


def _forward(plan, number, **changes):
    forwards = list(plan.forwards)
    forwards[number] = replace(forwards[number], **changes)
    return replace(plan, forwards=tuple(forwards))


def _unsplit(plan):
    return replace(plan, tensor=False)


@pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (4, 2), (1, 4)])
def test_a_lawful_plan(proven, ranks, stages):
    laws.verify(proven, ranks=ranks, stages=stages, proven=True)


BREACHES = {
    # law 1
    "a weight used twice": (
        lambda p: replace(p, weights=(*p.weights, Weight(p.weights[0].source, "model.norm.weight"))),
        ["law 1: model.layers.0.input_layernorm.weight has 2 dest", "law 1: model.norm.weight is filled 2 times"],
    ),
    "a weight missing": (
        lambda p: replace(p, weights=p.weights[1:]),
        ["law 1: model.layers.0.input_layernorm.weight is filled by nothing"],
    ),
    "a part missing": (
        lambda p: replace(p, weights=tuple(w for w in p.weights if "0.self_attn.k_proj.bias" not in w.source)),
        ["law 1: part 1 of model.layers.0.self_attn.qkv_proj.bias is filled by nothing"],
    ),
    "a weight for nothing": (
        lambda p: replace(p, weights=(*p.weights, Weight("model.extra", "model.extra"))),
        ["law 1: model.extra is filled, but no op has such a parameter"],
    ),
    "parts in the wrong order": (
        lambda p: _with(p, f"{AT}.mlp.gate_up_proj", parts=("up_proj", "gate_proj")),
        ["law 1: part 0 of .* is filled by .*gate_proj.weight, expected .*up_proj.weight"],
    ),
    "two projections for three": (
        lambda p: _with(p, f"{AT}.self_attn.qkv_proj", parts=("q_proj", "k_proj")),
        [f"law 1: {AT}.self_attn.qkv_proj is made of 2 projections, expected one or three"],
    ),
    "rows of parts moved": (
        lambda p: _with(p, f"{AT}.mlp.gate_up_proj", rows=((96, 192, 1), (0, 96, 1))),
        [f"law 1: {AT}.mlp.gate_up_proj moves rows, but is made of 2 projections"],
    ),
    "rows lost": (
        lambda p: _with(p, f"{AT}.mlp.gate_up_proj", parts=("both",), rows=((96, 192, 1), (0, 95, 1))),
        [f"law 1: {AT}.mlp.gate_up_proj holds rows that are not each of 192 rows once"],
    ),
    "a norm turned": (
        lambda p: replace(p, weights=(replace(p.weights[0], transposed=True), *p.weights[1:])),
        [f"law 1: {AT}.input_layernorm.weight is turned, but is the matrix of no linear"],
    ),
    "a tie to nothing": (
        lambda p: replace(p, ties=(Tie("lm_head.weight", "model.gone.weight"),)),
        ["law 1: lm_head.weight is tied to model.gone.weight, which nothing fills"],
    ),
    # law 2
    "split though nothing can be": (_unsplit, [r"law 2: .*\[0-3\].self_attn.k_norm is split", "qkv_proj is split"]),
    "nobody adds up": (
        lambda p: _whole(p, lambda o: o.path == f"{AT}.mlp.down_proj"),
        [],
    ),
    "nobody adds up in the block": (
        lambda p: _whole(p, lambda o: isinstance(o, Row) and o.path.startswith(f"{AT}.")),
        ["law 2: model.layers.0.mlp.gate_up_proj gives a split value, but no Row"],
    ),
    "nothing is split for a row": (
        lambda p: _whole(
            _without(_without(p, f"{AT}.self_attn.qkv_proj"), f"{AT}.mlp.gate_up_proj"),
            lambda o: isinstance(o, Column),
        ),
        ["law 2: model.layers.0.side.down reads a split value, but nothing beside it splits one"],
    ),
    "attention reads other heads": (
        lambda p: replace(p, ops=tuple(replace(o, kv_heads=4) if isinstance(o, Attention) else o for o in p.ops)),
        [r"law 2: .*qkv_proj gives heads \(4, 2, 16, 16, True\), but the attention beside it reads \(4, 4,"],
    ),
    # law 3
    "units do not divide the outputs": (
        lambda p: _with(p, f"{AT}.side.up", units=5),
        ["law 3: model.layers.0.side.up has 32 outputs, which 5 units do not divide"],
    ),
    "key heads do not divide": (
        lambda p: _with(p, f"{AT}.self_attn.qkv_proj", kv_heads=3),
        ["law 3: .* has 4 heads, which 3 key heads do not divide"],
    ),
    "norm units do not divide": (
        lambda p: _with(p, f"{AT}.self_attn.k_norm", units=3),
        ["law 3: .* has 32 elements, which 3 units do not divide"],
    ),
    # law 4
    "a layer too many": (
        lambda p: replace(p, stages=replace(p.stages, count=3)),
        ["law 4: model.layers.3 is claimed, but the plan counts 3 layers"],
    ),
    "what crosses has no name": (
        lambda p: replace(p, stages=replace(p.stages, carried="hidden_states, residual")),
        ["law 4: what crosses a cut of model.layers has no name"],
    ),
    "layers elsewhere": (
        lambda p: replace(p, stages=replace(p.stages, decoder="other")),
        ["law 4: model.layers does not lie in the decoder other", "law 4: no rewritten forward hands .* at other"],
    ),
    "an end that is a layer": (
        lambda p: replace(p, stages=replace(p.stages, last=("model.layers.3",))),
        ["law 4: model.layers.3 is a decoder layer"],
    ),
    # law 5
    "claimed twice": (
        lambda p: replace(p, ops=(*p.ops, Keep("model.norm"))),
        ["law 5: model.norm is claimed 2 times"],
    ),
    "claimed inside": (
        lambda p: replace(p, ops=(*p.ops, Norm("model.norm.inner", 64, 1e-5, "none"))),
        ["law 5: model.norm.inner is claimed inside model.norm"],
    ),
    "a part claimed again": (
        lambda p: replace(p, ops=(*p.ops, Keep(f"{AT}.self_attn.q_proj"))),
        ["law 5: model.layers.0.self_attn.q_proj is claimed 2 times"],
    ),
    # law 6
    "a promise nobody keeps": (
        lambda p: _forward(p, 1, promised=("gate_up_proj", "fused")),
        [r"law 6: the forward TinyMLP needs `fused` at model.layers.\[0-3\].mlp but no op provides it"],
    ),
    "two forwards for one module": (
        lambda p: _forward(p, 1, paths=(f"{AT}.self_attn",), promised=()),
        ["law 6: model.layers.0.self_attn gets 2 forwards"],
    ),
    "a forward that reads what is gone": (
        lambda p: _forward(p, 0, text="def forward(self, x):\n    return self.q_proj(x)\n"),
        [r"law 6: the forward TinyAttention still reads `q_proj` at model.layers.\[0-3\].self_attn"],
    ),
    "parts gone, forward as it was": (
        lambda p: replace(p, forwards=p.forwards[1:]),
        [r"law 6: model.layers.\[0-3\].self_attn lost `k_proj`, `q_proj`, `v_proj` to an op"],
    ),
    # law 7
    "a proof missing": (
        lambda p: replace(p, proofs=p.proofs[1:]),
        [r"law 7: norm at model.layers.\*.input_layernorm carries no proof"],
    ),
    "a proof that proves nothing": (
        lambda p: replace(p, proofs=(replace(p.proofs[0], error=1e-3), *p.proofs[1:])),
        ["law 7: .* is off by 1.0e-03, more than 1.0e-08"],
    ),
    "a proof without a number": (
        lambda p: replace(p, proofs=(replace(p.proofs[0], error=float("nan")), *p.proofs[1:])),
        ["law 7: .* is off by nan"],
    ),
}


@pytest.mark.parametrize("name", BREACHES)
def test_a_breach_is_told(proven, name):
    broken, wanted = BREACHES[name]
    if not wanted:
        laws.verify(broken(proven))
        return
    with pytest.raises(PlanError) as caught:
        laws.verify(broken(proven))
    for pattern in wanted:
        assert re.search(pattern, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("change", "ranks", "told"),
    [
        (lambda p: p, 3, r"gate|heads"),
        (lambda p: _with(p, f"{AT}.side.up", units=2), 4, r"up .* 4 ranks \(2 units\); it can over 1, 2$"),
        (lambda p: p, 8, r"self_attn cannot be split over 8 ranks \(4 heads, 2 key heads\); it can over 1, 2, 4$"),
        (lambda p: _with(p, f"{AT}.mlp.gate_up_proj", sizes=(96, 90)), 4, r"parts of 96, 90"),
        (lambda p: _with(p, f"{AT}.self_attn.o_proj", inputs=62), 4, r"\(62 inputs\); it can over 1, 2, 31, 62"),
        (lambda p: _with(p, f"{AT}.self_attn.k_norm", units=8), 3, r"\(8 units\)"),
    ],
)
def test_law_3_names_the_module_and_the_numbers_that_work(plan, change, ranks, told):
    with pytest.raises(PlanError) as caught:
        laws.verify(change(plan), ranks=ranks)
    assert re.search(told, str(caught.value), re.MULTILINE), str(caught.value)


def test_ranks_and_stages_of_a_plan_that_has_none(plan):
    with pytest.raises(PlanError, match="cannot be split over 2 ranks; the plan's refusals say why"):
        laws.verify(replace(plan, tensor=False), ranks=2)
    with pytest.raises(PlanError, match="cannot be cut into 2 stages; the plan's refusals say why"):
        laws.verify(replace(plan, stages=None, forwards=plan.forwards[:2]), stages=2)
    with pytest.raises(PlanError, match="has 4 layers, too few for 5 stages"):
        laws.verify(plan, stages=5)


def test_proofs_are_asked_for_only_where_there_are_some(plan):
    laws.verify(plan)
    with pytest.raises(PlanError, match="carries no proof"):
        laws.verify(plan, proven=True)
    with pytest.raises(PlanError, match="carries no proof"):
        laws.verify(plan.with_proofs(Proof("something else", "by hand", 0.0, 1.0)))


def test_every_breach_is_gathered(plan):
    broken = replace(plan, weights=plan.weights[1:], ops=(*plan.ops, Keep("model.norm")))
    with pytest.raises(PlanError) as caught:
        laws.verify(broken, ranks=3, stages=9)
    assert {f"law {number}" for number in (1, 3, 4, 5)} <= {line[2:7] for line in str(caught.value).splitlines()[1:]}


def test_breaches_that_differ_in_the_layer_are_told_once(plan):
    with pytest.raises(PlanError) as caught:
        laws.verify(plan, ranks=8)
    told = [line.split(" (")[0] for line in str(caught.value).splitlines()[1:]]
    assert "  law 3: model.layers.[0-3].self_attn cannot be split over 8 ranks" in told
    assert len(told) < 8
