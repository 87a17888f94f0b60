"""Values that a module gives or takes and nobody reads: keys for a cache that is not used, values asked for a dtype."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from hfspeed.graph.flow import behind
from hfspeed.graph.record import Recording
from hfspeed.graph.tensors import items, tensors

Where = tuple[Any, ...]


def forget_unread(recording: Recording) -> None:
    """Take out of the graphs' outputs what has no reader, from the logits down; what a module hands on is none.

    Only tuples and what holds fields are looked into, and only modules that were called once. Of inputs that a child
    makes nothing from, its call says so: they are ``unread``.
    """
    for call in recording.calls.values():
        for node in _children(call.graph):
            node.meta["unread"] = _unread_inputs(recording, node)
    root = recording.calls[""]
    logits = getattr(recording.output, "logits", None)
    if not isinstance(logits, torch.Tensor):
        return
    _keep(root.graph, {where for where, node in _leaves(_output(root.graph).args[0]) if _is(node, logits)})
    callers = {str(node.target): node for call in recording.calls.values() for node in _children(call.graph)}
    todo = [""]
    while todo:
        for path in dict.fromkeys(str(node.target) for node in _children(recording.calls[todo.pop()].graph)):
            if path in recording.calls and path not in recording.again:
                graph = recording.calls[path].graph
                if not isinstance(_output(graph).args[0], fx.Node):
                    _keep(graph, set(_read(callers[path])))
                todo.append(path)


def read_of(graph: fx.Graph, result: Any) -> Any:
    """What of a module's result its graph gives; the rest is left out."""

    def kept(value: Any, given: Any) -> Any:
        pairs = list(items(value))
        if given is None:
            return None if any(True for _ in tensors(value)) else value
        if isinstance(given, dict):
            given = list(given.values())
        if not isinstance(given, (tuple, list)) or len(given) != len(pairs):
            return value
        return [kept(item, one) for (_, item), one in zip(pairs, given, strict=True)]

    return kept(result, _output(graph).args[0])


def _unread_inputs(recording: Recording, node: fx.Node) -> frozenset[fx.Node]:
    """What goes into a child's call and into nothing that the child gives."""
    path = str(node.target)
    inner = recording.calls.get(path)
    if inner is None or inner.closed or path in recording.again or any(True for _ in inner.module.parameters()):
        return frozenset()
    read = {id(one.meta.get("value")) for one in behind(_output(inner.graph)) if one.op == "placeholder"}
    return frozenset(one for one in node.all_input_nodes if id(one.meta.get("value")) not in read)


def _children(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_module"]


def _output(graph: fx.Graph) -> fx.Node:
    return graph.output_node()


def _is(node: fx.Node, value: torch.Tensor) -> bool:
    return node.meta.get("value") is value


def _leaves(value: Any, where: Where = ()) -> Iterator[tuple[Where, fx.Node]]:
    """Every node in what a graph gives, and the keys that lead to it."""
    if isinstance(value, fx.Node):
        yield where, value
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (tuple, list)) else ()
    for key, item in pairs:
        yield from _leaves(item, (*where, str(key)))


def _read(node: fx.Node, where: Where = ()) -> Iterator[Where]:
    """The keys of all parts of a call's result that something reads."""
    for user in node.users:
        if user.target is operator.getitem and user.args[0] is node and user.meta.get("span") == node.meta.get("span"):
            yield from _read(user, (*where, str(user.args[1])))
        else:
            yield where


def _keep(graph: fx.Graph, read: set[Where]) -> None:
    output = _output(graph)

    def kept(value: Any, where: Where = ()) -> Any:
        if isinstance(value, fx.Node):
            return value if any(where[: len(one)] == one for one in read) else None
        if isinstance(value, dict):
            return {key: kept(item, (*where, str(key))) for key, item in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(kept(item, (*where, str(key))) for key, item in enumerate(value))
        return value

    output.args = (kept(output.args[0]),)
