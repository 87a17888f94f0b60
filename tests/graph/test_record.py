"""What a run leaves behind: calls, dataflow, and the exact expression behind every node."""

from __future__ import annotations

import functools
import operator
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hfspeed.graph.flow import origins
from hfspeed.graph.nodes import function_name
from hfspeed.graph.record import record, recorder

sys.path.insert(0, str(Path(__file__).parent))
from blocks import Root, Two, Writes, X, call_of, kinds, named, text


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


# fmt: off  (the spans of one expression over several lines are the point)
class Straight(Two):
    def forward(self, x):
        äöü = self.a(x)  # noqa: PLC2401  columns are bytes, and the author's names need not be ASCII
        h = äöü * F.silu(
            self.b(x),
        )
        return h.view(-1).sum(-1, keepdim=True)[..., 0] + self.scale[0]


# fmt: on
def test_spans_are_exact() -> None:
    call = call_of(Straight())
    assert kinds(call) == [
        *("arg_0", "block.a", "block.b", "silu", "mul", "view", "sum", "__getitem__", "block.scale", "__getitem__"),
        *("add", "output"),
    ]
    nodes = dict(zip(kinds(call), call.graph.nodes, strict=True))
    texts = {kind: text(node) for kind, node in nodes.items() if node.meta.get("span")}
    assert texts["block.a"] == "self.a(x)"
    assert texts["block.b"] == "self.b(x)"
    assert texts["silu"].split() == ["F.silu(", "self.b(x),", ")"]
    assert texts["mul"].startswith("äöü * F.silu(")
    assert texts["__getitem__"] == "self.scale[0]"
    assert texts["add"].startswith("h.view(")
    assert texts["add"].endswith("+ self.scale[0]")
    assert all(node.meta["span"].direct for node in call.graph.nodes if node.meta.get("span"))
    assert all(node.meta["span"].file == __file__ for node in call.graph.nodes if node.meta.get("span"))


def doubled(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return inner


def helper(value, child):
    return torch.tanh(child(value))


class Helped(Two):
    @doubled
    def forward(self, x):
        first = helper(x, self.a)
        both = [layer(first) for layer in (self.b,)]
        return self.method(both[0])

    def method(self, value):
        return value + 1


def test_helpers_and_decorators() -> None:
    """What happened in a helper is told at the call of the helper; what a decorator does is at no expression."""
    call = call_of(Helped())
    at = {name: node.meta["span"] for name in ("a", "tanh", "b", "add", "mul") for node in named(call, name)}
    assert {name: span.direct for name, span in at.items() if span} == dict.fromkeys(("a", "tanh", "b", "add"), False)
    assert [text(node) for node in named(call, "a")] == ["helper(x, self.a)"]
    assert [text(node) for node in named(call, "add")] == ["self.method(both[0])"]
    assert at["mul"] is None
    assert torch.equal(call.output, record(Root(Helped()), {"x": X}).calls["block"].output) is False


class Inherited(Straight):
    def forward(self, x):
        return super().forward(x) * 3


def test_a_parents_forward_is_a_helper() -> None:
    call = call_of(Inherited())
    assert [text(n) for n in named(call, "a")] == ["super().forward(x)"]
    assert [n.meta["span"].direct for n in named(call, "mul")] == [False, True]


def through_view(m, x):
    x.view(-1).mul_(2)
    return m.a(x)


def through_slice(m, x):
    x[..., :2].add_(1)
    return m.a(x)


def through_store(m, x):
    x[..., 0] = 1
    return m.a(x)


def through_out(m, x):
    torch.add(x, 1, out=x)
    return m.a(x)


def through_function(m, x):
    F.relu(x, inplace=True)
    return m.a(x)


def through_detach(m, x):
    x.detach().zero_()
    return m.a(x)


def through_augmented(m, x):
    y = x
    x += 1
    return m.a(y)


WRITES = [through_view, through_slice, through_store, through_out, through_function, through_detach, through_augmented]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("code", WRITES, ids=lambda code: code.__name__)
def test_a_write_makes_a_new_value(code, device: str) -> None:
    def twice(m, x):
        return m.b(x) + code(m, x)

    call = call_of(Writes(twice).to(device), X.clone().to(device))
    (first,), (second,) = named(call, "b"), named(call, "a")
    assert first.args[0].op == "placeholder"
    assert second.args[0] is not first.args[0]
    assert first.args[0] in origins(second.args[0], lambda node: node.op == "placeholder")


def test_what_writes_to_a_copy_or_changes_nothing_makes_no_new_value() -> None:
    def code(m, x):
        first = m.a(x)
        x.clone().mul_(2)
        x.view(-1).sum()
        x.to(x.dtype).float().contiguous()  # all of them x itself
        return first + m.b(x)

    call = call_of(Writes(code))
    assert named(call, "a")[0].args == named(call, "b")[0].args
    assert len(named(call, "float")) == 1


def test_what_is_stored_into_a_value_flows_into_it() -> None:
    def code(m, x):
        out = torch.zeros(1, 3, 8)
        out[..., :4] = m.a(x)
        out[..., 4:] = m.b(x)
        return out.sum()

    call = call_of(Writes(code))
    assert {node.target for node in origins(named(call, "sum")[0])} == {"block.a", "block.b"}


class Twice(Two):
    def forward(self, x):
        return self.a(self.a(x)) + self.b(x)


def test_a_module_called_twice() -> None:
    recording = record(Root(Twice()), {"x": X})
    assert list(recording.calls) == ["", "block", "block.a", "block.b"]
    assert [call.path for call in recording.again["block.a"]] == ["block.a"]
    assert len(named(recording.calls["block"], "a")) == 2
    assert recording.calls["block.a"].args[0] is X


@dataclass
class Pair:
    one: torch.Tensor
    rest: dict[str, list[torch.Tensor]]


class Gives(Two):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return self.shape(self.a(x), self.b(x))


class Takes(nn.Module):
    def __init__(self, shape, take):
        super().__init__()
        self.inner, self.last, self.take = Gives(shape), nn.Linear(4, 4), take

    def forward(self, x):
        return self.last(self.take(self.inner(x)))


@pytest.mark.parametrize(
    ("shape", "take"),
    [
        (lambda a, b: (a, b), lambda got: got[1]),
        (lambda a, b: [a, (b,)], lambda got: got[1][0]),
        (lambda a, b: {"a": a, "b": b}, lambda got: got["b"]),
        (lambda a, b: OrderedDict(first=a, rest=[b]), lambda got: got["rest"][0]),
        (lambda a, b: Pair(a, {"b": [b]}), lambda got: got.rest["b"][0]),
    ],
    ids=["tuple", "nested", "dict", "ordered", "dataclass"],
)
def test_results_of_any_shape(shape, take) -> None:
    recording = record(Root(Takes(shape, take)), {"x": X})
    outer, inner = recording.calls["block"], recording.calls["block.inner"]
    (last,) = (node for node in outer.graph.nodes if node.target == "block.last")
    assert [node.target for node in origins(last.args[0], lambda n: n.op == "call_module")] == ["block.inner"]
    part = last.args[0]
    assert part.target is operator.getitem
    assert {node.target for node in inner.graph.output_node().all_input_nodes} == {"block.inner.a", "block.inner.b"}


class Passes(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Reads()

    def forward(self, x):
        return self.inner(x, (x + 1, {"deep": x * 2}), key=Pair(x * 3, {}), flag=True)


class Reads(nn.Module):
    def forward(self, x, pair, key, flag):
        return x + pair[0] + pair[1]["deep"] + key.one if flag else x


def test_arguments_of_any_shape() -> None:
    recording = record(Root(Passes()), {"x": X}, keep_values=True)
    inner = recording.calls["block.inner"]
    given = [n.meta.get("argument") for n in inner.graph.nodes if n.op == "placeholder"]
    assert given == [0, 1, 1, "key"]
    (call,) = (n for n in recording.calls["block"].graph.nodes if n.target == "block.inner")
    assert {function_name(n) for n in call.all_input_nodes} == {"", "add", "mul"}
    assert inner.kwargs["flag"] is True
    assert inner.args[0] is not X
    assert torch.equal(inner.args[0], X)


class ChangesInput(Two):
    def forward(self, x):
        return self.a(x.mul_(0))


def test_kept_values_are_those_of_the_call() -> None:
    x = X.clone()
    kept = call_of(ChangesInput(), x, keep_values=True)
    assert not x.any()
    assert torch.equal(kept.args[0], X)
    assert "clone" not in kinds(record(Root(ChangesInput()), {"x": X.clone()}, keep_values=True).calls[""])


def test_parameters_and_buffers_are_known_by_name() -> None:
    call = call_of(Writes(lambda m, x: x * m.scale + m.table + F.linear(x, m.a.weight)))
    names = [node.target for node in call.graph.nodes if node.op == "get_attr"]
    assert names == ["block.scale", "block.table", "block.a.weight"]


def test_nothing_is_left_behind() -> None:
    before = nn.Module.__call__
    record(Root(Twice()), {"x": X})
    with pytest.raises(ZeroDivisionError):
        record(Root(Writes(lambda _m, _x: 1 / 0)), {"x": X})
    assert nn.Module.__call__ is before
    assert recorder() is None


def test_a_module_outside_the_model_is_seen_through() -> None:
    outside = nn.SiLU()
    call = call_of(Writes(lambda m, x: outside(m.a(x))))
    assert kinds(call)[1:3] == ["block.a", "silu"]
