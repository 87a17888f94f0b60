"""A graph in which a value that was written to, in place or through a view, also depends on what was written."""

from __future__ import annotations

from torch import fx

from hfspeed.graph.call import Call, written
from hfspeed.graph.inline import inlined
from hfspeed.graph.nodes import function_name


def completed(call: Call) -> Call:
    """A copy of ``call`` whose `written` nodes have, behind the value itself, the nodes that wrote to it."""
    copied = inlined(call, {}, ())
    writers: list[tuple[fx.Node, set[fx.Node]]] = []
    for node in copied.graph.nodes:
        if node.target is written:
            held = node.args[0]
            node.args = (held, *(writer for writer, into in writers if held in into))
        elif _writes(node) and isinstance(node.args[0], fx.Node):
            writers.append((node, _chain(node.args[0])))
    return copied


def _writes(node: fx.Node) -> bool:
    name = function_name(node)
    return bool(node.args) and (name == "__setitem__" or (name.endswith("_") and not name.endswith("__")))


def _chain(node: fx.Node) -> set[fx.Node]:
    """What a node may be a view of, itself included."""
    found = {node}
    while node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        found.add(node)
    return found
