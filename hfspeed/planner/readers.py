"""Which parameters are read by the code of another module than the one that has them."""

from __future__ import annotations

from collections.abc import Iterable

from hfspeed.graph.record import Call


def read_by_others(calls: Iterable[Call]) -> frozenset[str]:
    """Full names of the parameters that some module's code reads off another."""
    return frozenset(
        str(node.target)
        for call in calls
        for node in call.graph.nodes
        if node.op == "get_attr" and str(node.target).rpartition(".")[0] != call.path
    )


def owners_read(calls: Iterable[Call]) -> frozenset[str]:
    """The modules that have them."""
    return frozenset(name.rpartition(".")[0] for name in read_by_others(calls))
