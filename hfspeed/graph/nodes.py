"""What a node is: a linear, an activation, a cast, the attention interface."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import fx, nn

from hfspeed.graph.attend import causal
from hfspeed.graph.linear import shape_of

CASTS: Final = frozenset({
    "to", "float", "half", "bfloat16", "double", "type_as", "type", "contiguous", "clone", "detach",
})  # fmt: skip
"""Methods that give the same numbers in another dtype or place."""
SPLITS: Final = frozenset({"chunk", "split", "tensor_split", "split_with_sizes"})
"""Functions and methods that cut a value into pieces."""


def function_name(node: fx.Node) -> str:
    """``"silu"`` for ``F.silu``, ``"view"`` for ``Tensor.view``; empty for other kinds of node."""
    return str(getattr(node.target, "__name__", "")) if node.op == "call_function" else ""


def module_of(node: fx.Node) -> nn.Module | None:
    """The child called at this node."""
    found = node.meta.get("module")
    return found if isinstance(found, nn.Module) else None


def is_linear(node: object) -> bool:
    """A call of a child that is a linear and nothing else: see `shape_of`."""
    return isinstance(node, fx.Node) and shape_of(module_of(node)) is not None


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
    while node.args and isinstance(node.args[0], fx.Node) and _copies(node, node.args[0]):
        node = node.args[0]
    return node


def _copies(node: fx.Node, of: fx.Node) -> bool:
    """Whether ``node`` gives the numbers of ``of``; a cast to whole numbers does not."""
    if function_name(node) == "dropout":
        trains = node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True)
        return trains is False
    if isinstance(module_of(node), (nn.Dropout, nn.Identity)):
        return True
    if function_name(node) not in CASTS:
        return False
    return all(isinstance(v, torch.Tensor) and v.is_floating_point() for v in (value_of(node), value_of(of)))


def as_function(node: fx.Node) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """A node that takes one tensor, as a function of it; ``None`` if it takes more or has weights."""
    if len([a for a in (*node.args, *node.kwargs.values()) if isinstance(a, fx.Node)]) != 1:
        return None
    keywords = {name: value for name, value in node.kwargs.items() if name != "inplace"}
    named = next((name for name, value in keywords.items() if isinstance(value, fx.Node)), None)
    if named is None and not (node.args and isinstance(node.args[0], fx.Node)):
        return None
    target: Any = node.target if node.op == "call_function" else module_of(node)
    if target is None or (isinstance(target, nn.Module) and any(True for _ in target.parameters())):
        return None
    rest = node.args if named else node.args[1:]

    def function(x: torch.Tensor) -> torch.Tensor:
        given = (*rest,) if named else (x, *rest)
        return target(*given, **{**keywords, named: x} if named else keywords)  # type: ignore[no-any-return]

    return function


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
    x = torch.cat([torch.linspace(-12, 12, 97), torch.logspace(1, 5, 9), -torch.logspace(1, 5, 9)]).double()
    with torch.no_grad(), torch.device("cpu"):
        try:
            y: object = function(x)
        except (TypeError, ValueError, RuntimeError, NotImplementedError):
            return None  # not a function of one float tensor on its own
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        return None
    for name, known in ACTIVATIONS.items():
        if torch.allclose(y.double(), known(x), rtol=1e-6, atol=1e-7):
            return name
    return None
