"""Who holds what, counted by hand on small plans."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hfspeed.plan import Attention, Embed, Experts, Heads, History, Keep, Norm, Recurrence, Row, Weight
from hfspeed.plan.holdings import holdings
from hfspeed.plan.holdings_text import as_data, many, rendered, size
from hfspeed.plan.places import Layout, rows
from hfspeed.plan.sizes import sizes
from hfspeed.plan.tensors import Piece, Sources, Tensor, plain
from hfspeed.plan.traffic import Sent

SHAPES = {
    "input_layernorm.weight": (64,), "sinks": (4,), "q_proj.weight": (64, 64), "q_proj.bias": (64,),
    "k_proj.weight": (32, 64), "k_proj.bias": (32,), "v_proj.weight": (32, 64), "v_proj.bias": (32,),
    "gate_proj.weight": (96, 64), "up_proj.weight": (96, 64), "k_norm.weight": (32,), "o_proj.weight": (64, 64),
    "down_proj.weight": (64, 96), "side.up.weight": (32, 64), "side.up.bias": (32,), "side.down.weight": (64, 32),
    "side.router.centre": (5,), "embed_tokens.weight": (100, 64), "model.norm.weight": (64,),
}  # fmt: skip


def known(plan, dtype="bfloat16"):
    def shape(name):
        return next(shape for end, shape in SHAPES.items() if name.endswith(end))

    return Sources({one.source: plain(shape(one.source), dtype) for one in plan.weights}, dtype)


def of(plan, ranks=1, stages=1, spread=1, **more):
    return holdings(plan, known(plan), Layout(ranks, stages, spread), **more)


def test_one_rank_holds_everything(plan):
    (one,) = of(plan).held
    numbers = sum(math.prod(known(plan).tensors[weight.source].shape) for weight in plan.weights)
    assert one.parameters == numbers + 28 * 64  # 28 rows fill up the token table
    assert one.bytes == 2 * one.parameters
    assert one.cache == 4 * 2 * 2 * 16 * 2  # layers, key and value, key heads, elements of a head, bytes
    assert one.windowed == ((8, one.cache // 2),)
    assert (one.ranks, one.layers, one.state) == ((0, 1), (0, 4), 0)
    assert one.traffic.reduce == one.traffic.hand_on == Sent()
    assert one.reads == one.bytes  # the table is read whole, because it is the output projection too


def test_two_ranks(plan):
    (one,) = of(plan, ranks=2).held
    layer = {
        "norm": 64, "sinks": 2, "qkv": (32 + 16 + 16) * (64 + 1), "k_norm": 32, "o": 64 * 32, "gate and up": 96 * 64,
        "down": 64 * 48, "side": 16 * 65 + 64 * 16, "router": 5,
    }  # fmt: skip
    assert one.parameters == 4 * sum(layer.values()) + 64 * 64 + 64
    assert one.ranks == (0, 2)
    assert one.cache == 4 * 1 * 2 * 16 * 2
    assert one.traffic.reduce == Sent(1 + 4 * 3, (1 + 4 * 3) * 64 * 2)
    assert one.traffic.gather == Sent(4, 4 * 32 * 2)
    assert one.traffic.logits == Sent(1, 128 * 2)


def test_key_heads_repeat(plan):
    (one,) = of(plan, ranks=4).held
    assert one.cache == 4 * 1 * 2 * 16 * 2


def test_a_tied_table_is_on_both_ends(plan):
    first, last = of(plan, stages=2).held
    assert first.layers == (0, 2)
    assert last.layers == (2, 4)
    assert last.parameters == first.parameters + 64  # the norm behind the layers
    assert first.traffic.hand_on == Sent(1, 128)
    assert last.traffic.hand_on == Sent()
    assert last.reads - first.reads == (128 * 64 + 64) * 2
    assert of(plan, stages=2).pace() > of(plan, stages=2).balance() > 1


def test_stages_of_all_ranks_add_up(plan):
    whole = of(plan).held[0]
    for stages in (1, 2, 3, 4):
        held = of(plan, stages=stages).held
        assert sum(one.cache for one in held) == whole.cache
        again = 128 * 64 if stages > 1 else 0
        assert sum(one.parameters for one in held) == whole.parameters + again


def test_kernels_pad_heads(plan):
    plain_cache = of(plan).held[0].cache
    assert of(plan, kernel_heads=(8, 24, 32)).held[0].cache == plain_cache * 24 // 16
    assert of(plan, kernel_heads=(8,)).held[0].cache == plain_cache


def test_keys_are_padded_to_wider_values(plan):
    def wider(op):
        return dataclasses.replace(op, value_size=2 * op.head_size) if isinstance(op, Attention) else op

    wide = dataclasses.replace(plan, ops=tuple(wider(op) for op in plan.ops))
    assert of(wide).held[0].cache == 2 * of(plan).held[0].cache


def mixture(plan, count=6):
    op = Experts("model.layers.0.experts", count, 2, 64, 32, "silu", ("x", "i", "w"), ("up",), "down", down_bias="low")
    shapes = {"up": (count, 64, 64), "down": (count, 64, 32), "low": (count, 64)}
    weights = tuple(Weight(f"{op.path}.{name}", f"{op.path}.{name}") for name in shapes)
    mixed = dataclasses.replace(plan, ops=(op,), weights=weights, ties=())
    found = Sources({f"{op.path}.{name}": plain(shape, "float32") for name, shape in shapes.items()}, "float32")
    return mixed, found


def test_experts_by_width(plan):
    mixed, found = mixture(plan)
    (one,) = holdings(mixed, found, Layout(ranks=2)).held
    assert one.parameters == 6 * (32 * 64 + 64 * 16 + 64)
    assert one.reads == one.bytes // 3
    assert one.traffic.reduce == Sent(1, 64 * 4)


def test_whole_experts(plan):
    mixed, found = mixture(plan)
    many_, few = holdings(mixed, found, Layout(ranks=2, spread=4)).held
    each = 64 * 64 + 64 * 32 + 64
    assert (many_.ranks, many_.parameters) == ((0, 2), 2 * each)
    assert (few.ranks, few.parameters) == ((2, 4), each)
    assert many_.traffic.reduce == Sent()
    assert many_.traffic.exchange == Sent(2, 2 * 2 * 64 * 3 // 4 * 4)


def test_states(plan):
    ops = (
        Recurrence("model.layers.0.mixer", "scan", "exact", (3, 5), ("x",), calls=2),
        Recurrence("model.layers.1.mixer", "scan", "given", (3, 5), ("x",)),
        History("model.layers.2.mixer", ("1xTx64", "none"), ("1xTx64",)),
    )
    mixed = dataclasses.replace(plan, ops=ops, weights=(), ties=())
    (one,) = holdings(mixed, Sources({}, "bfloat16", frozenset({"exact"})), Layout()).held
    assert one.state == 2 * 64 + 32 + 16  # each a multiple of 16; at the end the counter of what is kept whole
    assert one.history == 64 * 8
    assert one.bytes == one.parameters == one.reads == 0


def test_quantised(plan):
    """A matrix in 4 bits, with scales for groups of inputs and a number for each output."""
    scales = Piece("float16", 512), Piece("float16", 128, "outputs"), Piece("float32", 4, "nothing")
    pieces = (Piece("int32", 2048), *scales)
    column = Heads("a.qkv", ("q", "k", "v"), 64, 2, 2, 16, 16, False, True)
    row = Row("a.o", 64, 64, False)
    ops = (column, row)
    weights = (Weight("a.q.weight", "a.qkv.weight", 0), Weight("a.o.weight", "a.o.weight"))
    found = Sources(dict.fromkeys(("a.q.weight", "a.o.weight"), Tensor((64, 64), pieces)), "float16", group=(32, 1))
    quant = dataclasses.replace(plan, ops=ops, weights=weights, ties=(), stages=None)
    (one,) = holdings(quant, found, Layout(ranks=2)).held
    assert dict(one.weights) == {"int32": 2 * 1024, "float16": 2 * 256 + 64 + 128, "float32": 2 * 4}
    assert one.parameters == 2 * 64 * 32
    able = sizes(quant, found.group, {"a.o"})[0]
    assert able.able == (1, 2)
    assert sizes(quant)[0].able == (1, 2)
    wide = dataclasses.replace(quant, ops=(dataclasses.replace(column, heads=8, kv_heads=8), row))
    assert sizes(wide)[0].able == (1, 2, 4, 8)
    assert sizes(wide, (32, 1), {"a.o"})[0].able == (1, 2)
    assert sizes(wide, (32, 1), {"a.o"})[0].why[-1] == "a.o: 64 inputs in groups of 32 that share a scale"


def test_what_a_kept_module_gathers(plan):
    ops = (Keep("a.norm", units=4), Norm("a.other", 48, 1e-5, "plain", units=4))
    kept = dataclasses.replace(plan, ops=ops, weights=(Weight("a.norm.w", "a.norm.w"),), ties=())
    (one,) = holdings(kept, Sources({"a.norm.w": plain((80,), "float32")}, "float32"), Layout(ranks=2)).held
    assert one.traffic.gather == Sent(2, (80 + 48) * 4)


@given(vocab=st.integers(1, 999), ranks=st.integers(1, 13))
def test_rows_divide(vocab, ranks):
    assert rows(vocab, ranks) % ranks == rows(vocab, ranks) % 64 == 0
    assert 0 <= rows(vocab, ranks) - vocab < math.lcm(64, ranks)


def test_possible(plan):
    tensor, stages, experts = sizes(plan)
    assert (tensor.able, stages.able, experts.able) == ((1, 2, 4), (1, 2, 3, 4), (1,))
    assert tensor.why == ("model.layers.[0-3].self_attn: 4 heads, 2 key heads, so 1, 2, 4 can",)
    assert stages.why == ("model.layers has 4 layers, and a stage needs one",)
    assert experts.why == ("experts (not-split)", "  no experts")
    alone = sizes(dataclasses.replace(plan, tensor=False, stages=None))
    assert [one.able for one in alone] == [(1,)] * 3
    assert alone[0].why == ("the plan does not say why",)
    whole = sizes(dataclasses.replace(plan, ops=(Keep("a"), Norm("b", 8, 1e-5, "plain"))))[0]
    assert whole.able == tuple(range(1, 65))
    assert whole.why == ("no layer is split, so every rank holds all of them",)


def test_every_cause_is_told(plan):
    ops = (Row("a.one", 12, 8, False), Row("a.two", 18, 8, False), Row("a.three", 36, 8, False))
    tensor = sizes(dataclasses.replace(plan, ops=ops))[0]
    assert tensor.able == (1, 2, 3, 6)
    assert sorted(one.partition(":")[0] for one in tensor.why) == ["a.one", "a.two"]


def test_text(plan):
    told = rendered(of(plan, ranks=2, stages=2), sizes(plan), disk=2048, lost=3)
    assert "stage  ranks  layers  parameters" in told
    assert "2.00 KiB on disk" in told
    assert "3 tensors on disk belong to nothing" in told
    assert "--tp 1, 2, 4 (up to 64 looked at)" in told
    assert "sends" not in rendered(of(plan), sizes(plan))


def test_data(plan):
    import json

    data = json.loads(json.dumps(as_data(of(plan, ranks=2), sizes(plan))))
    (one,) = data["held"]
    assert one["ranks"] == [0, 2]
    assert one["weights"] == {"bfloat16": one["bytes"]}
    assert one["traffic"]["reduce"]["calls"] == 13
    assert data["possible"]["tp"]["able"] == [1, 2, 4]


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [(size(0), "0 B"), (size(1023), "1023 B"), (size(1536), "1.50 KiB"), (size(2**31), "2.00 GiB"), (many(999), "999"),
     (many(1.24e9), "1.24 B"), (many(5_000), "5.00 k")],
)  # fmt: skip
def test_units(shown, wanted):
    assert shown == wanted


def test_a_plain_table_is_no_reading():
    """Without a tie the token table is looked up, not read."""
    from hfspeed.plan import Plan, Wrapper

    weights = (Weight("e.weight", "e.weight"),)
    plan = Plan("A", "a", 8, (Embed("e", 64, 8),), weights, (), (), Wrapper("m", (), "h"), None, True)
    (one,) = holdings(plan, Sources({"e.weight": plain((64, 8), "float32")}, "float32"), Layout()).held
    assert (one.bytes, one.reads) == (2048, 0)
