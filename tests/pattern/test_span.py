"""Mask functions of transformers, told apart by asking them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.masking_utils import (
    and_masks,
    causal_mask_function,
    chunked_causal_mask_function,
    or_masks,
    sliding_window_causal_mask_function,
)

from hfspeed.pattern.span import EVERYTHING, ODD, Mask, Span, sees, span_of

PARTS = (torch.arange(40) > 30).long()
ROW = torch.zeros(1, dtype=torch.int64)


def chunks(size: int) -> Mask:
    return chunked_causal_mask_function(size, ROW)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (causal_mask_function, EVERYTHING),
        (sliding_window_causal_mask_function(1), Span(window=1)),
        (sliding_window_causal_mask_function(5), Span(window=5)),
        (sliding_window_causal_mask_function(4096), Span(window=4096)),
        (chunks(7), Span(chunk=7)),
        (chunks(8192), Span(chunk=8192)),
    ],
)
def test_told_apart(mask: Mask, expected: Span) -> None:
    assert span_of(mask) == expected


@pytest.mark.parametrize(
    "mask",
    [
        lambda _b, _h, _q, k: k >= 0,
        or_masks(causal_mask_function, lambda _b, _h, q, k: k == q + 1),
        and_masks(causal_mask_function, lambda _b, _h, q, k: (q - k) % 2 == 0),
        and_masks(causal_mask_function, lambda _b, _h, q, k: (q < 5000) | (k > 3)),
        or_masks(sliding_window_causal_mask_function(64), lambda _b, _h, q, k: (k == 0) & (q >= 0)),
        lambda _b, head, q, k: (k <= q) & (q - k < (4 if head else 8)),
        lambda _b, _h, q, k: torch.ones(40, 40, dtype=torch.bool)[q, k],
        and_masks(causal_mask_function, lambda _b, _h, q, k: PARTS[q] == PARTS[k]),
    ],
    ids=["both ways", "one ahead", "every other", "the first forgotten late", "a sink", "by head", "a table", "parts"],
)
def test_odd(mask: Mask) -> None:
    assert span_of(mask, 40) == ODD


def test_a_table_that_shows_everything_before() -> None:
    mask = or_masks(causal_mask_function, lambda _b, _h, q, k: (PARTS[q] > 1) & (PARTS[k] > 1))
    assert span_of(mask, 40) == EVERYTHING
    assert span_of(mask, 40, 4096) == Span(window=4096)
    assert span_of(mask, 40, 8) == ODD


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 3000), st.booleans())
def test_any_size(size: int, by_chunk: bool) -> None:
    span = Span(chunk=size) if by_chunk else Span(window=size)
    assert span_of(lambda _b, _h, q, k: sees(span, q, k)) == span
