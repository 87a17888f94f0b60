"""A module's graph with the graphs of some of its children in the place of their calls."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from hfspeed.graph.nodes import is_part
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import items


def inlined(call: Call, calls: Mapping[str, Call], children: Collection[str]) -> Call:
    """``call`` with a graph that looks into ``children``; their nodes say in ``meta["owner"]`` whose they are."""
    graph = fx.Graph()
    known: dict[fx.Node, Any] = {}
    for node in call.graph.nodes:
        if node.op == "call_module" and str(node.target) in children:
            known[node] = _into(graph, calls[str(node.target)], _wired(node.args, known), _wired(node.kwargs, known))
        elif is_part(node) and isinstance(known.get(node.args[0]), tuple | dict):
            whole, key = known[node.args[0]], node.args[1]
            known[node] = whole[str(key)] if isinstance(whole, dict) else whole[key]
        else:
            known[node] = _copied(graph, node, known, call.path)
    return replace(call, graph=graph)


def _into(graph: fx.Graph, call: Call, args: Any, kwargs: Any) -> Any:
    """Write the nodes of ``call`` into ``graph``; what it returns, with nodes for tensors."""
    known: dict[fx.Node, Any] = {}
    given = dict(enumerate(args)) | dict(kwargs)
    for node in call.graph.nodes:
        if node.op == "output":
            return _wired(node.args[0], known)
        if node.op == "placeholder" and "argument" in node.meta:
            handed = list(_nodes(given[node.meta["argument"]]))
            # a mask that is no longer made is not handed over, and nothing reads it
            known[node] = handed[node.meta["number"]] if handed or node.users else None
        else:
            known[node] = _copied(graph, node, known, call.path)
    raise ValueError(f"the graph of {call.path} has no output")


def _copied(graph: fx.Graph, node: fx.Node, known: Mapping[fx.Node, Any], owner: str) -> Any:
    args, kwargs = _wired(node.args, known), _wired(node.kwargs, known)
    if node.op == "output":
        return graph.output(args[0])
    made = graph.create_node(node.op, node.target, args, kwargs)
    made.meta = {**node.meta, "owner": node.meta.get("owner", owner)}
    return made


def _wired(value: Any, known: Mapping[fx.Node, Any]) -> Any:
    """``value`` with every node replaced by what it has become; a call that gave several values becomes these."""
    if isinstance(value, fx.Node):
        return known[value]
    if isinstance(value, tuple | list):
        return tuple(_wired(item, known) for item in value)
    if isinstance(value, Mapping):
        return {key: _wired(item, known) for key, item in value.items()}
    return map_arg(value, lambda node: known[node]) if isinstance(value, slice) else value


def _nodes(value: Any) -> Iterator[fx.Node]:
    """Every node in nested values, in order."""
    if isinstance(value, fx.Node):
        yield value
    else:
        for _, item in items(value):
            yield from _nodes(item)
