"""What stands in for torch's functions in proofs gives what they give."""

from __future__ import annotations

import pytest
import torch

from hfspeed.graph.exact import Exact


@pytest.mark.parametrize("dim", [-1, 0])
def test_the_largest_lie_in_memory_as_torch_lays_them(dim: int) -> None:
    """Authors view the numbers of chosen experts as one row, which slices of a sorted table would not allow."""
    scores = torch.tensor([[0.5, 0.1, 0.9, 0.7], [0.2, 0.8, 0.4, 0.6]])
    usual = scores.topk(2, dim=dim)
    with Exact():
        found = scores.topk(2, dim=dim)
    for ours, theirs in zip(found, usual, strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(ours.view(-1), theirs.view(-1))


def test_what_is_made_in_the_default_dtype_meets_what_is_not() -> None:
    with Exact():
        made = torch.zeros(2, 3), torch.ones(3), torch.eye(3), torch.linspace(0, 1, 3), torch.empty(3)
        assert {one.dtype for one in made} == {torch.float64}
        assert torch.zeros(3, dtype=torch.int64).dtype is torch.int64
        assert torch.zeros(3, dtype=torch.float16).dtype is torch.float16
        assert torch.arange(3).dtype is torch.int64
