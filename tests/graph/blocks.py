"""Blocks to record, and what one asks of their graphs."""

from __future__ import annotations

import linecache

import torch
from torch import fx, nn

from hfspeed.graph.nodes import function_name
from hfspeed.graph.record import Call, record

X = torch.randn(1, 3, 4)


class Root(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x)


class Two(nn.Module):
    """Children `a` and `b` to write forwards with."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("table", torch.ones(4))


def call_of(block: nn.Module, x: torch.Tensor = X, **kwargs) -> Call:
    return record(Root(block).eval(), {"x": x}, **kwargs).calls["block"]


def text(node: fx.Node) -> str:
    """The author's text at a node's span."""
    span = node.meta["span"]
    lines = [line.encode() for line in linecache.getlines(span.file)[span.line - 1 : span.end_line]]
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column :]
    return b"".join(lines).decode()


def named(call: Call, name: str) -> list[fx.Node]:
    return [n for n in call.graph.nodes if function_name(n) == name or str(n.target) == f"block.{name}"]


def kinds(call: Call) -> list[str]:
    return [function_name(n) or str(n.target) for n in call.graph.nodes]


class Writes(Two):
    """A block whose forward is a function."""

    def __init__(self, code):
        super().__init__()
        self.code = code

    def forward(self, x):
        return self.code(self, x)
