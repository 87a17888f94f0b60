"""A recorded graph in which attention written by hand stands as one call of the attention interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from hfspeed.graph.attend import causal
from hfspeed.graph.nodes import value_of
from hfspeed.pattern.attend_call import Frame
from hfspeed.pattern.layout import INTERFACE, RESULT, laid
from hfspeed.pattern.measure import Measured
from hfspeed.pattern.scores import Operand, Written, descends, refused
from hfspeed.refusal import Reason


def canonical(one: Written, found: Measured, repeats: int = 1, frame: Frame | None = None) -> None:
    """Put the interface's call in place of what ``one`` names; scores and weights vanish from the graph.

    Args:
        one: the attention found.
        found: what it computes.
        repeats: how many neighbouring heads of key and value are equal.
        frame: the function that is no longer called, where one attends.

    Raises:
        Refused: scores or weights are put to another use.
    """
    lost = _lost(one)
    graph = one.call.graph
    stack = one.last.meta.get("stack", ())
    one.last.meta["stack"] = stack[stack.index(frame) :] if frame in stack else stack
    with graph.inserting_before(one.last):
        query, *both = [_laid(graph, part) for part in (one.query, one.key, one.value)]
        parts = [query, *(_strided(graph, part, repeats) for part in both)]
        keywords = {"sliding_window": found.window} if found.window is not None else {}
        attend = _called(graph, one, causal, (one.call.module, *parts, None), keywords)
        attend.meta["measured"] = found
        result = _called(graph, one, laid, (attend, RESULT, one.layout), {})
    one.last.replace_all_uses_with(result)
    output = next(node for node in graph.nodes if node.op == "output")
    output.args = fx.node.map_arg(output.args, lambda n: None if n in lost else n)
    for node in reversed(list(graph.nodes)):
        if node in lost and not node.users:
            graph.erase_node(node)


def _lost(one: Written) -> set[fx.Node]:
    """Scores, weights and what is only made from them; the result of attention is not."""
    kept = descends(one.last) - {one.last}
    lost = (descends(one.first) | descends(one.softmax)) - kept | {one.last}
    other = [node for node in lost if node.op == "call_module" and any(True for _ in node.meta["module"].parameters())]
    if other:
        told = "the attention weights are put to another use"
        raise refused(one.call, Reason.USED_ELSEWHERE, told, other[0])
    return {node for node in lost if node.op != "output"}


def _laid(graph: fx.Graph, part: Operand) -> fx.Node:
    if part.layout == INTERFACE:
        return part.node
    node = graph.call_function(laid, (part.node, part.layout))
    return _known(node, laid(value_of(part.node), part.layout), part.node)


def _strided(graph: fx.Graph, part: fx.Node, repeats: int) -> fx.Node:
    if repeats == 1:
        return part
    node = graph.call_function(strided, (part, repeats))
    return _known(node, strided(value_of(part), repeats), part)


def strided(tensor: torch.Tensor, repeats: int) -> torch.Tensor:
    """One head of each group of equal ones."""
    return tensor[:, ::repeats]


def _called(
    graph: fx.Graph, one: Written, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]
) -> fx.Node:
    node = graph.call_function(function, args, keywords)
    given = fx.node.map_arg(args, value_of)
    value = function(*given, **keywords) if value_of(one.last).is_meta or function is laid else None
    if value is None:
        value = laid(value_of(one.last), one.layout, RESULT)
    return _known(node, value, one.last)


def _known(node: fx.Node, value: torch.Tensor, like: fx.Node) -> fx.Node:
    node.meta.update(value=value, span=like.meta.get("span"), stack=like.meta.get("stack", ()), shadow=None)
    return node
