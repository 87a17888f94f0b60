"""Which parameters are read by the code of another module than the one that has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import fx, nn

from hfspeed.graph.linear import shape_of
from hfspeed.graph.record import Call
from hfspeed.plan import Keep, Op
from hfspeed.refusal import Reason, Refusal


def read_by_others(calls: Iterable[Call]) -> frozenset[str]:
    """Full names of the parameters that some module's code reads off another."""
    return frozenset(str(node.target) for node in _reads(calls))


def owners_read(calls: Iterable[Call]) -> frozenset[str]:
    """The modules that have them."""
    return frozenset(name.rpartition(".")[0] for name in read_by_others(calls))


def measured(calls: Iterable[Call]) -> frozenset[str]:
    """Modules of which others ask how large a parameter is, which kernels and ranks may change."""
    return frozenset(str(node.target).rpartition(".")[0] for node in _reads(calls) if not node.users)


def stay(ops: Iterable[Op], read: frozenset[str], model: nn.Module) -> Iterator[Refusal]:
    """What it costs that linears stay as their author made them, because their weights are ``read``."""
    for op in ops:
        if isinstance(op, Keep) and op.path in read and shape_of(model.get_submodule(op.path)):
            told = "its weight is read by other code, so it stays as its author made it, whole on every rank"
            yield Refusal("fusion", Reason.USED_ELSEWHERE, told, op.path)


def _reads(calls: Iterable[Call]) -> Iterator[fx.Node]:
    for call in calls:
        for node in call.graph.nodes:
            if node.op == "get_attr" and str(node.target).rpartition(".")[0] != call.path:
                yield node
