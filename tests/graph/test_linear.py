"""Which modules are linears: decided by running them, not by their names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.graph.linear import Shape, shape_of


class Turned(nn.Module):
    """The matrix is ``[inputs, outputs]``."""

    def __init__(self, outputs: int, inputs: int, **more: float) -> None:
        super().__init__()
        self.outputs = outputs
        self.scale = more.get("scale", 1.0)
        self.most = more.get("most", float("inf"))
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight) * self.scale
        return flat.clamp(max=self.most).view(*x.shape[:-1], self.outputs)


class Subclass(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


class Written(nn.Linear):
    """What `nn.Linear` computes, in other words."""

    def forward(self, x):
        y = x @ self.weight.T
        return y if self.bias is None else y + self.bias


def test_linears() -> None:
    assert shape_of(Written(3, 5)) == Shape(3, 5, True)
    assert shape_of(Written(3, 5, bias=False)) == Shape(3, 5, False)
    assert shape_of(nn.Linear(3, 5)) == Shape(3, 5, True)
    assert shape_of(nn.Linear(3, 5, bias=False)) == Shape(3, 5, False)
    assert shape_of(Turned(5, 3)) == Shape(3, 5, True, transposed=True)
    assert shape_of(Turned(4, 4)) == Shape(4, 4, True, transposed=True)
    with torch.device("meta"):
        assert shape_of(Turned(5, 3)) == Shape(3, 5, True, transposed=True)


def _extra() -> nn.Module:
    module = Turned(5, 3)
    module.more = nn.Parameter(torch.zeros(2))
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: None,
        lambda: nn.ReLU(),
        lambda: nn.Embedding(5, 3),
        lambda: nn.Bilinear(3, 3, 3),
        lambda: Subclass(3, 5),
        lambda: Turned(5, 3, scale=1.01),
        lambda: Turned(5, 3, most=1e3),
        _extra,
    ],
    ids=["nothing", "no weights", "a table", "torch's own", "a subclass", "scaled", "clamped", "with more"],
)
def test_no_linears(make) -> None:
    assert shape_of(make()) is None


def test_the_weights_stay() -> None:
    module = Turned(5, 3)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    shape_of(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
