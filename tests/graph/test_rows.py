"""Rows are followed through whatever only moves them, and through nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.graph.rows import HEADS, cuts, form, numbered


class Cut(nn.Module):
    """A packed linear of 12 rows, cut by ``how`` into what is returned."""

    def __init__(self, how) -> None:
        super().__init__()
        self.packed, self.how = nn.Linear(4, 12), how

    def forward(self, x):
        return self.how(self.packed(x))


def graph_of(how):
    call = record(Cut(how).eval(), {"x": torch.randn(1, 5, 4)}).calls[""]
    linear = next(node for node in call.graph.nodes if node.op == "call_module")
    ends = next(node for node in call.graph.nodes if node.op == "output").args[0]
    return linear, ends if isinstance(ends, tuple) else (ends,)


@pytest.mark.parametrize(
    ("how", "rows", "text"),
    [
        (lambda v: v[..., 8:], [8, 9, 10, 11], ""),
        (lambda v: v[..., 1::3], [1, 4, 7, 10], ""),
        (lambda v: v.split([4, 8], -1)[0].contiguous(), [0, 1, 2, 3], ""),
        (lambda v: v.view(1, 5, 3, 4)[:, :, 1], [4, 5, 6, 7], ""),
        (lambda v: v.view(1, 5, 2, 3, 2)[:, :, :, 2], [4, 5, 10, 11], HEADS),
        (lambda v: v.view(1, 5, 6, 2).transpose(1, 2)[:, :3], [*range(6)], f"{HEADS}.transpose(1, 2)"),
        (lambda v: v.unsqueeze(1).chunk(3, -1)[1], [4, 5, 6, 7], ".unsqueeze(1)"),
    ],
)
def test_rows_and_form(how, rows, text) -> None:
    linear, (end,) = graph_of(how)
    codes = numbered(linear)[end]
    assert form(codes, torch.Size((1, 5)), 12, 2) == (rows, text)


@pytest.mark.parametrize(
    "how",
    [
        lambda v: v.double()[..., :4],
        lambda v: (v * 1)[..., :4],
        lambda v: v.clamp(-9, 9)[..., :4],
        lambda v: v.flip(-1),
    ],
    ids=["a cast", "a factor", "a clamp", "an unknown function"],
)
def test_what_may_change_a_number_is_not_followed(how) -> None:
    linear, (end,) = graph_of(how)
    assert end not in numbered(linear)


def test_a_write_ends_it() -> None:
    def how(v):
        v[..., :2] = 0
        return v[..., :4]

    linear, (end,) = graph_of(how)
    assert end not in numbered(linear)


def test_forms_that_take_heads_apart() -> None:
    linear, (end,) = graph_of(lambda v: v.view(1, 5, 2, 6).transpose(2, 3))
    assert form(numbered(linear)[end], torch.Size((1, 5)), 12, 6) is None
    linear, (end,) = graph_of(lambda v: v.transpose(0, 1))
    assert form(numbered(linear)[end], torch.Size((1, 5)), 12, 6) is None


def test_cuts() -> None:
    linear, ends = graph_of(lambda v: tuple(part.view(1, 5, 2, 2) * 2 for part in v.chunk(3, -1)))
    found = cuts(linear, ends, numbered(linear))
    assert found is not None
    assert [[node.meta["value"].shape[-1] for node in nodes] for nodes in found] == [[4, 2]] * 3


@pytest.mark.parametrize(
    "how",
    [
        lambda v: (v[..., :4], v[..., :8], v[..., 8:] + v[..., :1]),
        lambda v: (torch.cat([v[..., :2], v[..., 4:6]], -1), v[..., 2:4], v[..., 6:]),
        lambda v: tuple((v * 2).chunk(3, -1)),
    ],
    ids=["from another's", "from two pieces", "changed before"],
)
def test_no_cuts(how) -> None:
    linear, ends = graph_of(how)
    assert cuts(linear, ends, numbered(linear)) is None
