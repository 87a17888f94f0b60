"""A stretch of recorded dataflow run again on other values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import function_name, module_of


class Unknown(Exception):  # noqa: N818  it is what was found, not what failed
    """A value that the stretch reads has no value that follows from tokens and positions alone."""

    def __init__(self, node: fx.Node) -> None:
        self.node = node
        super().__init__(node.name)


def replay(
    wanted: fx.Node,
    given: Mapping[fx.Node, torch.Tensor],
    instead: Mapping[object, Callable[..., Any]] | None = None,
) -> torch.Tensor:
    """What ``wanted`` gives in float64 when the nodes in ``given`` have other values than in the recorded run.

    Args:
        wanted: a node that is made from nodes in ``given``.
        given: their values.
        instead: functions to call in place of recorded ones.

    Raises:
        Unknown: it also reads a value that depends on weights.
        RuntimeError, TypeError, ValueError, IndexError: what the author's operations raise.
    """
    known: dict[fx.Node, Any] = {node: value.clone() for node, value in given.items()}
    needed = ancestors(wanted, given)
    moving = {node for node in needed if moves(node, given)}
    # what nobody who moves reads need not have a value: a call that gives several is read part by part
    read = {one for node in moving if node not in known for one in node.all_input_nodes} | {wanted}
    with torch.no_grad(), Exact(), torch.device("cpu"):
        for node in wanted.graph.nodes:
            if node not in needed or node in known:
                continue
            if node in moving:
                known[node] = _run(node, known, instead or {})
            elif node in read:
                known[node] = side(node)
    return known[wanted]  # type: ignore[no-any-return]


def alone(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    """What ``node`` gives in float64 when its inputs have the values in ``known``.

    Raises:
        RuntimeError, TypeError, ValueError, IndexError: what the author's operation raises.
    """
    with torch.no_grad(), Exact(), torch.device("cpu"):
        return _run(node, known, {})


def sides(wanted: fx.Node, given: Mapping[fx.Node, Any]) -> tuple[list[fx.Node], list[fx.Node]]:
    """The nodes between ``given`` and ``wanted``, and those from elsewhere that they read; both in order."""
    needed = ancestors(wanted, given)
    between = [n for n in wanted.graph.nodes if n in needed and n not in given and moves(n, given)]
    read = {i for n in between for i in _added(n) if i not in given and not moves(i, given)}
    return between, [n for n in wanted.graph.nodes if n in read]


def _added(node: fx.Node) -> list[fx.Node]:
    """What goes into a node; not what only gives a product its shape, and is multiplied with nothing."""
    unread = node.args[0] if function_name(node) == "baddbmm" and node.kwargs.get("beta") == 0 else None
    return [one for one in node.all_input_nodes if one is not unread]


def side(node: fx.Node) -> Any:
    """The value of a node that depends on no weights; floats in float64.

    Raises:
        Unknown: it has none.
    """
    shadow = node.meta.get("shadow")
    if shadow is None:
        raise Unknown(node)
    assert isinstance(shadow, torch.Tensor)
    return shadow.double() if shadow.is_floating_point() else shadow


def moves(node: fx.Node, given: Mapping[fx.Node, Any]) -> bool:
    """Whether ``node`` is made from a node in ``given``."""
    return any(one in given for one in ancestors(node, given))


def ancestors(node: fx.Node, stop: Mapping[fx.Node, Any]) -> set[fx.Node]:
    """``node`` and everything it is made from, not beyond ``stop``, nor beyond what has a value whatever they are."""
    found, todo = {node}, [node]
    while todo:
        at = todo.pop()
        if at in stop or _settled(at):
            continue
        for one in at.all_input_nodes:
            if one not in found:
                found.add(one)
                todo.append(one)
    return found


def _settled(node: fx.Node) -> bool:
    """Whether a node on meta has a value all the same: then it depends on no weights, although it may be given some."""
    value = node.meta.get("value")
    return isinstance(value, torch.Tensor) and value.is_meta and node.meta.get("shadow") is not None


def _run(node: fx.Node, known: Mapping[fx.Node, Any], instead: Mapping[object, Callable[..., Any]]) -> Any:
    args = fx.node.map_arg(node.args, lambda n: known[n])
    keywords = fx.node.map_arg(node.kwargs, lambda n: known[n])
    target: Any = module_of(node) if node.op == "call_module" else node.target
    return instead.get(node.target, target)(*args, **keywords)
