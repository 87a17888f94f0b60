"""What a node is, and what reaches what."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hfspeed.graph.attend import attend, causal
from hfspeed.graph.flow import between, origins
from hfspeed.graph.linear import Shape, shape_of
from hfspeed.graph.nodes import activation, function_name, is_attention, is_linear, linears, peeled

sys.path.insert(0, str(Path(__file__).parent))
from blocks import Writes, call_of, named, text


def test_flow() -> None:
    call = call_of(Writes(lambda m, x: m.b(torch.tanh(m.a(x)) + 1) + m.table))
    (a,), (b,) = named(call, "a"), named(call, "b")
    carriers, ends = between(a, is_linear)
    assert {function_name(n) for n in carriers} == {"tanh", "add"}
    assert ends == {b}
    assert origins(b.args[0]) == (a,)


@pytest.mark.parametrize(
    ("code", "copies"),
    [
        (lambda m, x: m.a(x).float().contiguous().to("cpu"), True),
        (lambda m, x: F.dropout(m.a(x), 0.5, training=m.training), True),
        (lambda m, x: F.dropout(m.a(x), 0.5), False),
        (lambda m, x: m.a(x).to(torch.int64), False),
        (lambda m, x: m.a(x) * 1, False),
    ],
)
def test_only_copies_are_looked_through(code, copies: bool) -> None:
    call = call_of(Writes(code))
    assert is_linear(peeled(call.graph.output_node().args[0])) is copies


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (lambda _, x: F.silu(x), "silu"),
        (lambda _, x: F.silu(input=x), "silu"),
        (lambda _, x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
        (lambda _, x: torch.nn.functional.gelu(x, approximate="none"), "gelu"),
        (lambda _, x: F.relu(x), None),
        (lambda _, x: F.softmax(x, -1), None),
        (lambda _, x: x.clamp(min=0), None),
        (lambda _, x: x.cumsum(-1), None),
        (lambda m, x: x * m.scale, None),
    ],
)
def test_activations_are_known_by_running(code, name: str | None) -> None:
    call = call_of(Writes(code))
    last = call.graph.output_node().args[0]
    assert activation(last) == name


def attends(m, x):
    heads = m.a(x).view(1, 3, 2, 2).transpose(1, 2)
    return attend(m, heads, heads, heads, None, scaling=0.5, s_aux=m.scale[:2])[0].reshape(1, 3, 4)


def test_attention_is_one_node() -> None:
    call = call_of(Writes(attends))
    (node,) = (n for n in call.graph.nodes if is_attention(n))
    assert node.target is causal
    assert text(node) == "self.code(self, x)"
    assert node.meta["span"].direct is False, "the forward itself only calls `self.code`"
    assert [n.target for n in linears(call.graph)] == ["block.a"]
    assert node.kwargs["scaling"] == 0.5
    assert not any(function_name(n) in {"softmax", "matmul"} for n in call.graph.nodes)


class Turned(nn.Module):
    """A linear that keeps its matrix the other way round, or something that looks like one."""

    def __init__(self, code=None):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6)), nn.Parameter(torch.randn(6))
        self.code = code or (lambda m, x: x @ m.weight + m.bias)

    def forward(self, x):
        return self.code(self, x)


LINEAR = {
    "matmul": lambda m, x: x @ m.weight + m.bias,
    "addmm": lambda m, x: torch.addmm(m.bias, x.reshape(-1, 4), m.weight).view(*x.shape[:-1], 6),
    "functional": lambda m, x: F.linear(x, m.weight.T, m.bias),
    "einsum": lambda m, x: torch.einsum("...i,io->...o", x, m.weight) + m.bias,
}
NOT_LINEAR = {
    "no bias": lambda m, x: x @ m.weight + 0 * m.bias,
    "bias twice": lambda m, x: x @ m.weight + 2 * m.bias,
    "scaled": lambda m, x: x @ m.weight * 2 + m.bias,
    "clipped": lambda m, x: (x @ m.weight).clamp(-100, 100) + m.bias,
    "rounded weight": lambda m, x: x @ m.weight.round() + m.bias,
    "an activation": lambda m, x: F.silu(x @ m.weight + m.bias),
    "a residual": lambda m, x: x @ m.weight + m.bias + x.sum(-1, keepdim=True),
    "tokens mixed": lambda m, x: (x.flip(0) if x.ndim == 2 else x.flip(1)) @ m.weight + m.bias,
    "an error": lambda m, x: x.no_such(m),
}


@pytest.mark.parametrize("code", [*LINEAR, *NOT_LINEAR])
def test_a_linear_is_what_multiplies_and_adds(code: str) -> None:
    shape = shape_of(Turned((LINEAR | NOT_LINEAR)[code]))
    assert shape == (Shape(4, 6, bias=True, transposed=True) if code in LINEAR else None)


def test_linears_of_torch_itself() -> None:
    class Low(nn.Linear):
        pass

    class Other(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    assert shape_of(nn.Linear(3, 5, bias=False)) == Shape(3, 5, bias=False)
    assert shape_of(Low(3, 5)) == Shape(3, 5, bias=True)
    assert shape_of(Other(3, 5)) is None, "a subclass may compute something else"
    assert [shape_of(m) for m in (None, nn.Embedding(4, 6), nn.LayerNorm(4), nn.Bilinear(2, 2, 2))] == [None] * 4
