"""Whether one value alone goes from each call in a row to everything behind it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import fx

from hfspeed.graph.record import Call, Recording
from hfspeed.plan.paths import outer


def crowded(graph: fx.Graph, calls: Sequence[fx.Node]) -> fx.Node | None:
    """The first of ``calls`` that, or behind which something, reads more than one value made by those before it.

    A value that is made of one other alone counts as that other. What only the output lists does not count.
    """
    order = {node: number for number, node in enumerate(graph.nodes)}
    made: dict[fx.Node, None] = {}
    start = order[calls[0]]
    nodes = list(graph.nodes)
    for before, call in pairwise(calls):
        for node in nodes[start : order[call]]:
            if node in calls or any(one in made for one in node.all_input_nodes):
                made[node] = None
        start = order[call]
        candidates = [node for node in made if order[before] <= order[node]]
        if not any(_alone(node, made, order, order[call]) for node in candidates):
            return call
    return None


def _alone(one: fx.Node, made: dict[fx.Node, None], order: dict[fx.Node, int], end: int) -> bool:
    """Whether nothing from ``end`` on reads what was made otherwise than from ``one``."""
    others: set[fx.Node] = set()
    for node in made:
        if node is one or (order[node] > order[one] and not others.intersection(node.all_input_nodes)):
            continue
        others.add(node)
        if any(order[user] >= end and user.op != "output" for user in node.users):
            return False
    return True


def smuggled(recording: Recording, paths: Sequence[str]) -> tuple[str, str] | None:
    """Two of ``paths`` of which the second reads what the first made, without being given it; ``None`` if none do."""
    makers: dict[int, str] = {}
    below: dict[str, list[Call]] = {path: [] for path in paths}
    for name, call in recording.calls.items():
        for above in (*outer(name), name):
            if above in below:
                below[above].append(call)
    for path, inside in below.items():
        for call in inside:
            for node in call.graph.nodes:
                maker = makers.get(id(node.meta.get("value")))
                if node.op == "placeholder" and node.target == "constant" and maker not in {None, path}:
                    return str(maker), path
        for node in (node for call in inside for node in call.graph.nodes if node.op.startswith("call_")):
            value = node.meta.get("value")
            if not any(one.meta.get("value") is value for one in node.all_input_nodes):  # else it only hands it on
                makers.setdefault(id(value), path)
    return None
