"""What reaches what, in a recorded graph."""

from __future__ import annotations

from collections.abc import Callable

from torch import fx

from hfspeed.graph.nodes import is_linear


def origins(node: fx.Node, stop: Callable[[fx.Node], bool] = is_linear) -> tuple[fx.Node, ...]:
    """The nearest nodes behind ``node`` (itself included) at which ``stop`` holds, in graph order."""
    found, seen, todo = set(), set(), [node]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if stop(at):
            found.add(at)
        else:
            todo.extend(at.all_input_nodes)
    return tuple(n for n in node.graph.nodes if n in found)


def behind(*nodes: fx.Node, stop: fx.Node | None = None) -> set[fx.Node]:
    """The nodes and everything that they are made from, but for what lies behind ``stop``.

    What a child was given and made nothing from, as values whose dtype alone it asks for, is none of it.
    """
    seen: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            unread = at.meta.get("unread", ())
            todo += [] if at is stop else [one for one in at.all_input_nodes if one not in unread]
    return seen


def between(start: fx.Node, stop: Callable[[fx.Node], bool]) -> tuple[set[fx.Node], set[fx.Node]]:
    """The nodes that carry what ``start`` gave, and the nodes with ``stop`` (or ends) that take it.

    A node without readers, and the output, are ends.
    """
    carriers: set[fx.Node] = set()
    ends: set[fx.Node] = set()
    todo = [start]
    while todo:
        at = todo.pop()
        for reader in at.users:
            if reader.op == "output" or stop(reader):
                ends.add(reader)
            elif reader not in carriers:
                carriers.add(reader)
                todo.append(reader)
    return carriers, ends
