"""The reference's attention is the one that the author's code means, packed and cached or not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hfspeed.graph.attend import causal
from hfspeed.plan import Attention, Norm
from hfspeed.reference import layers
from hfspeed.reference.packing import Packing
from hfspeed.reference.ranks import Alone, Ranks
from hfspeed.refusal import Reason, Refused

torch.set_num_threads(1)
HEADS, SIZE, VALUE = 4, 6, 5


def _attention(window=None, softcap=None, sinks=False, kv_heads=2, packing=None):
    op = Attention("m.attn", HEADS, kv_heads, SIZE, VALUE, 0.3, window, softcap, "sinks" if sinks else None)
    given = {"scaling": 0.3, "sliding_window": window, "softcap": softcap, "dropout": 0.0}
    if sinks:
        given["s_aux"] = torch.linspace(-1, 2, HEADS, dtype=torch.float64)
    return layers.CausalAttention(op, packing or Packing(), Alone()), given


def _values(tokens, kv_heads=2, batch=1):
    source = torch.Generator().manual_seed(tokens)

    def draw(heads, size):
        return torch.randn(batch, heads, tokens, size, generator=source, dtype=torch.float64)

    return draw(HEADS, SIZE), draw(kv_heads, SIZE), draw(kv_heads, VALUE)


OPTIONS = {
    "window": st.one_of(st.none(), st.integers(1, 9)),
    "softcap": st.sampled_from([None, 0.7]),
    "sinks": st.booleans(),
    "kv_heads": st.sampled_from([1, 2, 4]),
}


@given(tokens=st.integers(1, 8), options=st.fixed_dictionaries(OPTIONS))
@settings(max_examples=40, deadline=None)
def test_it_is_what_the_recorded_leaf_computes(tokens, options):
    attention, keywords = _attention(**options)
    query, key, value = _values(tokens, options["kv_heads"], batch=2)
    ours, none = attention(query, key, value, None, **keywords)
    assert none is None
    assert torch.allclose(ours, causal(nn.Module(), query, key, value, None, **keywords), atol=1e-12)


@given(data=st.data(), options=st.fixed_dictionaries(OPTIONS))
@settings(max_examples=40, deadline=None)
def test_packed_in_any_pieces_it_is_the_same(data, options):
    packing = Packing()
    attention, keywords = _attention(**options, packing=packing)
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    whole = [_values(length + 10, options["kv_heads"]) for length in lengths]
    whole = [tuple(t[:, :, :length] for t in values) for values, length in zip(whole, lengths, strict=True)]
    done, found = [0] * len(lengths), [[] for _ in lengths]
    while pending := [number for number, length in enumerate(lengths) if done[number] < length]:
        chosen = data.draw(st.permutations(pending))[: data.draw(st.integers(1, len(pending)))]
        pieces = [(number, data.draw(st.integers(1, lengths[number] - done[number]))) for number in chosen]
        positions = packing.lay(*pieces)
        assert positions.tolist() == [[p for n, count in pieces for p in range(done[n], done[n] + count)]]
        row = [torch.cat([whole[n][at][:, :, done[n] : done[n] + count] for n, count in pieces], 2) for at in range(3)]
        out, _ = attention(*row, None, **keywords)
        for (number, count), piece in zip(pieces, out.split([count for _, count in pieces], 1), strict=True):
            done[number] += count
            found[number].append(piece)
    plain, _ = _attention(**options)
    for values, pieces in zip(whole, found, strict=True):
        assert torch.allclose(torch.cat(pieces, 1), plain(*values, None, **keywords)[0], atol=1e-12)


def test_by_hand():
    """Three tokens, a window of two: the last one does not see the first."""
    op = Attention("m.attn", 1, 1, 1, 1, 1.0, window=2)
    attention = layers.CausalAttention(op, Packing(), Alone())
    numbers = torch.tensor([[1, 1, 1], [0, 1, 2], [4, 5, 6]], dtype=torch.float64)
    query, key, value = (row.reshape(1, 1, 3, 1) for row in numbers)
    out, _ = attention(query, key, value, None, sliding_window=2)
    share = 1 / (1 + math.e)
    wanted = [4.0, 4 * share + 5 * (1 - share), 5 * share + 6 * (1 - share)]
    assert torch.allclose(out.flatten(), torch.tensor(wanted, dtype=torch.float64))


def test_a_mask_is_refused():
    attention, keywords = _attention()
    with pytest.raises(Refused) as caught:
        attention(*_values(3), torch.zeros(1, 1, 3, 3), **keywords)
    assert caught.value.refusal.reason is Reason.MASK_NOT_CAUSAL


def test_other_shapes_than_planned_are_told():
    attention, keywords = _attention()
    query, key, value = _values(3)
    with pytest.raises(ValueError, match=r"m.attn hands its attention query, key, value of"):
        attention(query[:, :2], key, value, None, **keywords)


def test_a_sequence_lies_in_a_row_once():
    with pytest.raises(ValueError, match="once"):
        Packing().lay((0, 2), (0, 1))


@pytest.mark.parametrize(("units", "ranks"), [(4, 2), (4, 4), (2, 4), (1, 2), (0, 2), (4, 1)])
def test_gather_and_keep_undo_each_other(units, ranks):
    whole = torch.arange(24.0).reshape(2, 12)

    def work(_rank, group):
        own = layers.keep(whole, units, group)
        assert torch.equal(layers.gather(own, units, group), whole)
        return own.shape[-1]

    assert Ranks(ranks).run(work) == [12 if not units else 12 // units * max(1, units // ranks)] * ranks


@pytest.mark.parametrize(("weight", "plus"), [("plain", 0.0), ("one_plus", 1.0), ("none", None)])
def test_norm(weight, plus):
    value, given_weight = torch.randn(3, 8).double(), torch.randn(8).double()
    norm = layers.RmsNorm(Norm("n", 8, 1e-3, weight), None if plus is None else given_weight, Alone())
    wanted = nn.functional.rms_norm(value, (8,), None if plus is None else given_weight + plus, 1e-3)
    assert torch.allclose(norm(value), wanted)
    with pytest.raises(ValueError, match="n norms 8 elements, but is given 4"):
        norm(value[:, :4])


@pytest.mark.parametrize("vocab", [1, 5, 8, 9])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_table_and_head_over_any_vocabulary(vocab, ranks):
    from hfspeed.plan import shares

    table = torch.randn(vocab, 3).double()
    tokens = torch.arange(vocab)[None]

    def work(rank, group):
        start, stop = shares.vocabulary(vocab, rank, ranks)
        rows = layers.TokenTable(table[start:stop], vocab, 2.0, group)(tokens)
        with pytest.raises(IndexError, match="outside the table"):
            layers.TokenTable(table[start:stop], vocab, 2.0, group)(tokens + vocab)
        return rows, layers.OutputHead(table[start:stop], None, vocab, group)(rows)

    with torch.no_grad():
        for rows, logits in Ranks(ranks).run(work):
            assert torch.equal(rows[0], table * 2)
            assert torch.allclose(logits[0], table * 2 @ table.T)


def test_gated():
    value = torch.randn(2, 8).double()
    gate, up = value[:, :4], value[:, 4:]
    assert torch.equal(layers.GatedAct("silu")(value), nn.functional.silu(gate) * up)
    assert torch.equal(layers.GatedAct("gelu")(value), nn.functional.gelu(gate) * up)
    assert torch.equal(layers.GatedAct("gelu_tanh")(value), nn.functional.gelu(gate, approximate="tanh") * up)


def test_an_absent_module_returns_what_it_is_given():
    there = nn.Linear(2, 2)
    there.kind = "sliding"
    absent = layers.Absent(there)
    value = torch.ones(2)
    assert absent.kind == "sliding"
    assert list(absent.parameters()) == []
    assert absent(value, 3, x=4) is value
    assert absent(hidden_states=value) is value
    assert layers.Absent(there, tuple_output=True)(value) == (value,)
