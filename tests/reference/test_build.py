"""Building takes each weight from where the plan says, and leaves nothing unfilled."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from hfspeed.errors import PlanError
from hfspeed.plan import Heads, Keep, Local, Norm, Stacked, Tie, Weight
from hfspeed.reference.build import BUILDERS, build
from hfspeed.reference.layers import Absent
from hfspeed.reference.ranks import Ranks


@pytest.fixture(scope="module")
def subject(hand):
    model = hand.author("gemma2", num_hidden_layers=3)
    plan = hand.plan_of("gemma2", model)
    return model, plan, hand.emitted(model, plan)


def test_every_op_has_a_builder():
    from hfspeed.plan import OPS

    assert set(BUILDERS) == set(OPS)


def test_parts_become_one_and_the_author_keeps_his(subject):
    model, plan, classes = subject
    built = build(plan, model, classes)
    attention, theirs = built.model.layers[0].self_attn, model.model.layers[0].self_attn
    assert not hasattr(attention, "q_proj")
    assert hasattr(theirs, "q_proj")
    wanted = torch.cat([theirs.q_proj.weight, theirs.k_proj.weight, theirs.v_proj.weight])
    assert torch.equal(attention.qkv_proj.weight, wanted)
    assert attention.qkv_proj_sizes == [48, 24, 24]
    assert type(attention).__name__ == "Gemma2Attention"
    assert type(attention) is not type(theirs)
    assert isinstance(attention, type(theirs))
    assert torch.equal(built.lm_head.weight, model.model.embed_tokens.weight)
    assert built.model.hands_on is False


def test_ranks_hold_their_shares(subject):
    model, plan, classes = subject
    built = Ranks(4).run(lambda rank, group: build(plan, model, classes, rank=rank, ranks=4, group=group))
    theirs = model.model.layers[1]
    for rank, one in enumerate(built):
        layer = one.model.layers[1]
        assert layer.self_attn.qkv_proj_sizes == [12, 12, 12]
        assert layer.self_attn.qkv_proj.weight.shape == (36, 48)
        key = theirs.self_attn.k_proj.weight[rank // 2 * 12 : rank // 2 * 12 + 12]
        assert torch.equal(layer.self_attn.qkv_proj.weight[12:24], key)
        assert torch.equal(layer.mlp.down_proj.weight, theirs.mlp.down_proj.weight[:, rank * 10 : rank * 10 + 10])
    assert torch.equal(torch.cat([one.lm_head.weight for one in built]), model.lm_head.weight)


def test_stages_hold_their_layers(subject):
    model, plan, classes = subject
    first, last = (build(plan, model, classes, stage=(number, 2)) for number in range(2))
    kinds = [[isinstance(layer, Absent) for layer in one.model.layers] for one in (first, last)]
    assert [sum(pair) for pair in zip(*kinds, strict=True)] == [1, 1, 1]
    assert isinstance(last.model.embed_tokens, Absent)
    assert not isinstance(first.model.embed_tokens, Absent)
    assert isinstance(first.model.norm, Absent)
    assert isinstance(first.lm_head, Absent)
    assert (first.model.hands_on, last.model.hands_on) == (True, False)
    assert not {name for name, _ in first.named_parameters()} & {name for name, _ in last.named_parameters()}
    with pytest.raises(PlanError, match="cannot be cut into 2 stages"):
        build(replace(plan, stages=None), model, classes, stage=(0, 2))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda p: replace(p, weights=tuple(w for w in p.weights if "norm" not in w.target)), "no weight of the plan"),
        (lambda p: replace(p, ties=()), "lm_head.weight: no weight of the plan fills it"),
        (lambda p: replace(p, ties=(Tie("lm_head.weight", "model.norm.weight"),)), r"lm_head.weight: the author's"),
        (
            lambda p: replace(p, ops=tuple(op for op in p.ops if not isinstance(op, Norm)),
                              weights=tuple(w for w in p.weights if w.source != "model.norm.weight")),
            "model.norm.weight: the built model needs this parameter, but no weight of the plan fills it",
        ),
        (
            lambda p: replace(p, weights=(*(w for w in p.weights if w.target != "model.norm.weight"),
                                          Weight("model.norm.gain", "model.norm.weight"))),
            "model.norm.weight: the author's model has no model.norm.gain",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(subject, change, told):
    model, plan, classes = subject
    with pytest.raises(PlanError, match=told):
        build(change(plan), model, classes)


class Small(nn.Module):
    """A packed projection, a parameter and a buffer of its own."""

    def __init__(self):
        super().__init__()
        self.packed = nn.Linear(4, 12)
        self.own = nn.Linear(8, 8)
        self.own.register_buffer("table", torch.arange(8.0))
        self.own.count = 8
        self.other = nn.Parameter(torch.arange(3.0))


def _small(hand_plan, **changes):
    names = ("packed.weight", "packed.bias", "own.weight", "own.bias", "own.table", "other")
    ops = (
        Stacked("packed", ("packed",), 4, (4, 8), True, True),
        Keep("own", units=4),
        Local("own", "count", 8),
        Keep("other"),
    )
    weights = tuple(Weight(name, name) for name in names)
    return replace(hand_plan, ops=ops, weights=weights, ties=(), forwards=(), stages=None, **changes)


def test_rows_in_another_order_and_matrices_turned(hand):
    """Ranks hold their share of the rows in the plan's order; a turned matrix is turned back."""
    model = Small()
    model.packed.weight = nn.Parameter(model.packed.weight.t().contiguous())
    ops = (Heads("packed", ("packed",), 4, 2, 2, 2, 2, True, True, ((4, 12, 1), (0, 4, 1))),)
    weights = (Weight("packed.weight", "packed.weight", transposed=True), Weight("packed.bias", "packed.bias"))
    bare = hand.plan_of("llama", hand.author("llama"))
    plan = replace(bare, ops=ops, weights=weights, ties=(), forwards=(), stages=None)
    for rank in (0, 1):
        built = build(plan, model, None, rank=rank, ranks=2, strict=False)
        rows = [[4, 5, 8, 9, 0, 1], [6, 7, 10, 11, 2, 3]][rank]
        assert torch.equal(built.packed.weight, model.packed.weight.t()[rows])
        assert torch.equal(built.packed.bias, model.packed.bias[rows])
        assert built.packed_sizes == [2, 2, 2]


def test_packed_kept_and_local(subject):
    plan, model = _small(subject[1]), Small()
    with torch.no_grad():
        value = model.own(torch.arange(8.0))

    def work(rank, group):
        with torch.no_grad():
            built = build(plan, model, None, rank=rank, ranks=2, group=group)
            return built, built.own(torch.arange(8.0)[rank * 4 : rank * 4 + 4])

    for rank, (built, own) in enumerate(Ranks(2).run(work)):
        rows = [*range(rank * 2, rank * 2 + 2), *range(4 + rank * 4, 8 + rank * 4)]
        assert torch.equal(built.packed.weight, model.packed.weight[rows])
        assert built.packed_sizes == [2, 4]
        assert torch.allclose(own, value[rank * 4 : rank * 4 + 4])
        assert built.own.count == 4
        assert torch.equal(built.own.table, model.own.table)
    assert model.own.count == 8
