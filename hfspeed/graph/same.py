"""Whether two modules did the same in a run: every call in them, node by node."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from hfspeed.graph.call import Recording
from hfspeed.graph.frozen import frozen


def same_graphs(recording: Recording, one: str, other: str) -> bool:
    """Whether the calls of the modules at ``one`` and ``other``, and of all below them, have equal graphs."""
    mine, theirs = (
        {path[len(at) :]: call for path, call in recording.calls.items() if path == at or path.startswith(f"{at}.")}
        for at in (one, other)
    )
    return list(mine) == list(theirs) and all(
        mine[path].cls is theirs[path].cls and _same(mine[path].graph, theirs[path].graph, one, other) for path in mine
    )


def _same(one: fx.Graph, other: fx.Graph, mine: str, theirs: str) -> bool:
    nodes, others = list(one.nodes), list(other.nodes)
    if len(nodes) != len(others):
        return False
    numbers = {node: number for number, node in enumerate(nodes)} | {node: number for number, node in enumerate(others)}
    return all(_told(a, mine, numbers) == _told(b, theirs, numbers) for a, b in zip(nodes, others, strict=True))


def _told(node: fx.Node, at: str, numbers: dict[fx.Node, int]) -> Any:
    """A node without the path of its layer."""
    target = node.target
    if isinstance(target, str) and node.op in {"call_module", "get_attr"}:
        target = target.removeprefix(at)
    name = getattr(target, "__qualname__", target)  # a callable wrapped for one layer is another object in the next
    given = _argument((node.args, node.kwargs), numbers)
    return node.op, name, given, _shape(node.meta.get("value")), node.meta.get("span"), node.meta.get("stack")


def _argument(value: Any, numbers: dict[fx.Node, int]) -> Any:
    if isinstance(value, fx.Node):
        return "node", numbers[value]
    if isinstance(value, (tuple, list)):
        return tuple(_argument(part, numbers) for part in value)
    if isinstance(value, dict):
        return tuple((name, _argument(part, numbers)) for name, part in value.items())
    if isinstance(value, slice):
        return tuple(_argument(part, numbers) for part in (value.start, value.stop, value.step))
    return type(value) if isinstance(value, nn.Module) else frozen(value, 0)


def _shape(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else type(value)
