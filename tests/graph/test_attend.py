"""The recorded leaf computes what torch's own attention computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hfspeed.graph.attend import attend

MODULE = nn.Module()


def drawn(batch: int, heads: int, kv_heads: int, tokens: int, size: int, value: int, dtype=torch.float64):
    source = torch.Generator().manual_seed(tokens * 100 + heads)
    shapes = ((heads, size), (kv_heads, size), (kv_heads, value))
    return [torch.randn(batch, h, tokens, s, generator=source, dtype=torch.float64).to(dtype) for h, s in shapes]


def ours(*tensors: torch.Tensor, **keywords) -> torch.Tensor:
    out, weights = attend(MODULE, *tensors, None, **keywords)
    assert weights is None
    return out.transpose(1, 2)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 3), st.sampled_from([(1, 1), (4, 4), (4, 2), (6, 1)]), st.integers(1, 9), st.integers(1, 8),
    st.integers(1, 8), st.sampled_from([None, 0.3, 2.0]),
)  # fmt: skip
def test_causal(batch: int, heads: tuple[int, int], tokens: int, size: int, value: int, scale: float | None) -> None:
    tensors = drawn(batch, *heads, tokens, size, value)
    wanted = F.scaled_dot_product_attention(*tensors, is_causal=True, scale=scale, enable_gqa=True)
    keywords = {} if scale is None else {"scaling": scale}
    torch.testing.assert_close(ours(*tensors, **keywords), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("window", [1, 2, 5, 9, 50])
def test_a_window_counts_the_own_key(window: int) -> None:
    tensors = drawn(2, 4, 2, 9, 8, 8)
    age = torch.arange(9)[:, None] - torch.arange(9)[None]
    mask = (age >= 0) & (age < window)
    wanted = F.scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(ours(*tensors, sliding_window=window), wanted, rtol=1e-12, atol=1e-12)


def test_a_softcap_bounds_the_scores_before_the_mask() -> None:
    query, key, value = drawn(1, 2, 2, 6, 8, 8)
    scores = torch.tanh(query @ key.mT * 0.7 / 1.5) * 1.5
    wanted = scores.masked_fill(~torch.ones(6, 6).tril().bool(), -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(ours(query, key, value, scaling=0.7, softcap=1.5), wanted, rtol=1e-12, atol=1e-12)


def test_sinks_take_weight_and_give_no_value() -> None:
    query, key, value = drawn(2, 4, 2, 6, 8, 8)
    sinks = torch.tensor([-100.0, 0.0, 3.0, 100.0], dtype=torch.float64)
    keys = torch.cat([torch.zeros(2, 4, 1, 8, dtype=torch.float64), key.repeat_interleave(2, 1)], 2)
    values = torch.cat([torch.zeros(2, 4, 1, 8, dtype=torch.float64), value.repeat_interleave(2, 1)], 2)
    bias = torch.zeros(4, 6, 7, dtype=torch.float64)
    bias[:, :, 0] = sinks[:, None]
    bias[:, :, 1:].masked_fill_(~torch.ones(6, 6).tril().bool(), -torch.inf)
    wanted = F.scaled_dot_product_attention(query, keys, values, attn_mask=bias)
    torch.testing.assert_close(ours(query, key, value, s_aux=sinks), wanted, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        ours(query, key, value, s_aux=sinks)[:, 0], ours(query, key, value)[:, 0], rtol=1e-12, atol=1e-12
    )


def test_more_keys_than_queries_are_older_ones() -> None:
    query, key, value = drawn(1, 2, 2, 7, 8, 8)
    wanted = F.scaled_dot_product_attention(query, key, value, is_causal=True)[:, :, -2:]
    torch.testing.assert_close(ours(query[:, :, -2:], key, value), wanted, rtol=1e-12, atol=1e-12)


def test_on_meta_only_shapes() -> None:
    query, key, value = (tensor.to("meta") for tensor in drawn(2, 4, 2, 6, 8, 5))
    out, _ = attend(MODULE, query, key, value, None, scaling=1.0, sliding_window=3)
    assert out.is_meta
    assert out.shape == (2, 6, 4, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_dtype_stays(dtype: torch.dtype) -> None:
    assert ours(*drawn(1, 2, 1, 4, 8, 8, dtype)).dtype is dtype
