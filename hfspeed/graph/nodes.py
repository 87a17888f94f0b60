"""What a node is: a linear, an activation, a cast, the attention interface."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import fx, nn

from hfspeed.graph.attend import causal

_CASTS: Final = {
    "to", "float", "half", "bfloat16", "double", "type_as", "type", "contiguous", "clone", "detach",
    "dropout", "identity",
}  # fmt: skip


def function_name(node: fx.Node) -> str:
    """``"silu"`` for ``F.silu``, ``"view"`` for ``Tensor.view``; empty for other kinds of node."""
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def module_of(node: fx.Node) -> nn.Module | None:
    """The child called at this node."""
    found = node.meta.get("module")
    return found if isinstance(found, nn.Module) else None


def is_linear(node: object) -> bool:
    """A call of a child that is exactly ``nn.Linear``: a subclass may compute something else."""
    return isinstance(node, fx.Node) and type(module_of(node)) is nn.Linear


def linears(graph: fx.Graph) -> tuple[fx.Node, ...]:
    """All calls of plain linear children, in order."""
    return tuple(node for node in graph.nodes if is_linear(node))


def is_attention(node: object) -> bool:
    """A call of the attention interface."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target is causal


def is_part(node: fx.Node) -> bool:
    """One element of a node with several results."""
    return node.op == "call_function" and node.target is operator.getitem


def value_of(node: fx.Node) -> Any:
    """What the node gave in the recorded run."""
    return node.meta["value"]


def width(node: fx.Node) -> int:
    """The last dimension of what the node gave."""
    return int(value_of(node).shape[-1])


def peeled(node: fx.Node) -> fx.Node:
    """The node below casts, copies and (in evaluation) dropout."""
    while node.args and isinstance(node.args[0], fx.Node):
        copies = function_name(node) in _CASTS or isinstance(
            module_of(node), (nn.Dropout, nn.Identity)
        )
        if not copies:
            break
        node = node.args[0]
    return node


def as_function(node: fx.Node) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A node that takes one tensor, as a function of it; ``None`` if it takes more or has weights."""
    tensors = [a for a in (*node.args, *node.kwargs.values()) if isinstance(a, fx.Node)]
    if len(tensors) != 1 or not node.args or node.args[0] is not tensors[0]:
        return None
    rest, keywords = node.args[1:], dict(node.kwargs)
    keywords.pop("inplace", None)
    if node.op == "call_function" and callable(node.target):
        target = node.target
        return lambda x: target(x, *rest, **keywords)  # type: ignore[no-any-return]
    module = module_of(node)
    if module is None or any(True for _ in module.parameters()):
        return None
    return lambda x: module(x, *rest, **keywords)  # type: ignore[no-any-return]


ACTIVATIONS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
}


def activation(node: fx.Node) -> str | None:
    """Which known activation the node computes, found by running it; ``None`` if none of them."""
    function = as_function(node)
    if function is None:
        return None
    x = torch.linspace(-12, 12, 97, dtype=torch.float64)
    with torch.no_grad(), torch.device("cpu"):
        try:
            y = function(x)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return None  # not a function of one float tensor on its own
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        return None
    for name, known in ACTIVATIONS.items():
        if torch.allclose(y.double(), known(x), rtol=1e-6, atol=1e-7):
            return name
    return None
