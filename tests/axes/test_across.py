"""A pair whose column and row lie in two children of one module, and what is no such pair."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.axes import tensor
from hfspeed.graph.attend import attend
from hfspeed.graph.record import Recording, record


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 16) for _ in range(3))

    def forward(self, x):
        q, k, v = (part(x).view(1, 5, 4, 4).transpose(1, 2) for part in (self.q, self.k, self.v))
        return attend(self, q, k, v)[0].reshape(1, 5, 16), None


class Out(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.dense = nn.Linear(width, 8)

    def forward(self, x, before):
        return self.dense(x) + before


class Block(nn.Module):
    """Two children; ``spoil`` does something with the value on the way."""

    def __init__(self, spoil=None):
        super().__init__()
        self.inner, self.out, self.spoil = Heads(), Out(), spoil

    def forward(self, x):
        value, _ = self.inner(x)
        if self.spoil:
            value = self.spoil(value)
        return self.out(value, before=x)


def recorded(module: nn.Module) -> Recording:
    torch.manual_seed(0)
    root = nn.Module()
    root.block = module
    root.forward = lambda x: root.block(x)  # type: ignore[method-assign]
    return record(root.eval(), {"x": torch.randn(1, 5, 8)}, keep_values=True)


def block_of(recording: Recording) -> tensor.Block | None:
    return tensor.block(tensor.across(recording.calls["block"], recording))


def test_column_in_one_child_and_row_in_another() -> None:
    recording = recorded(Block())
    assert tensor.block(recording.calls["block.inner"]) is None
    assert tensor.block(recording.calls["block.out"]) is None
    found = block_of(recording)
    assert found is not None
    assert found.columns == {"block.inner.q": 4, "block.inner.k": 4, "block.inner.v": 4}
    assert found.rows == ("block.out.dense",)
    assert found.attends == {"block.inner"}


@pytest.mark.parametrize("spoil", [lambda v: torch.cat([v, v], 0)[:1], lambda v: v * 2], ids=["moved", "scaled"])
def test_whatever_lies_between_is_decided_by_running_it(spoil) -> None:
    assert block_of(recorded(Block(spoil))) is not None


def test_a_value_that_leaves_the_parent_is_no_share() -> None:
    class Leaks(Block):
        def forward(self, x):
            value, _ = self.inner(x)
            return self.out(value, before=x), value

    assert block_of(recorded(Leaks())) is None


def test_a_row_that_also_reads_whole_values_is_none() -> None:
    class Twice(Block):
        def forward(self, x):
            value, _ = self.inner(x)
            return self.out(value, before=self.out(torch.cat([x, x], -1), before=x))

    assert block_of(recorded(Twice())) is None


def test_linears_of_its_own_keep_it_as_it_is() -> None:
    class Own(Block):
        def __init__(self):
            super().__init__()
            self.more = nn.Linear(8, 8)

        def forward(self, x):
            return super().forward(self.more(x))

    recording = recorded(Own())
    call = recording.calls["block"]
    assert tensor.across(call, recording) is call
    assert tensor.block(call) is None
