"""Which parameters are read by the code of another module than the one that has them, and what else keeps linears."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType

from torch import fx, nn

from hfspeed.graph.linear import changed, shape_of
from hfspeed.graph.record import Call
from hfspeed.plan import Keep, Op
from hfspeed.plan.styles import generic
from hfspeed.planner.ways import line
from hfspeed.refusal import Place, Reason, Refusal

INSTEAD = "let the forward that calls it do what the hook does"
HELP = "take sizes from the configuration, or from what the forward is given"


def read_by_others(calls: Iterable[Call]) -> frozenset[str]:
    """Full names of the parameters that some module's code reads off another."""
    return frozenset(str(node.target) for node in _reads(calls))


def owners_read(calls: Iterable[Call]) -> frozenset[str]:
    """The modules that have them."""
    return frozenset(name.rpartition(".")[0] for name in read_by_others(calls))


def measured(calls: Iterable[Call]) -> Mapping[str, Place | None]:
    """Modules of which others ask how large a parameter is, which kernels and ranks may change; and where they ask."""
    return {str(node.target).rpartition(".")[0]: line(node) for node in _reads(calls) if not node.users}


def stay(ops: Iterable[Op], sized: Mapping[str, Place | None], model: nn.Module) -> Iterator[Refusal]:
    """What it costs that linears stay as their author made them, because other code asks how large they are."""
    places = {generic(path): place for path, place in sized.items()}
    for op in ops:
        if isinstance(op, Keep) and generic(op.path) in places and shape_of(model.get_submodule(op.path)):
            told = "other code asks how large its weight is, so it stays as its author made it, whole on every rank"
            place = places[generic(op.path)]
            yield Refusal("fusion", Reason.USED_ELSEWHERE, told, op.path, place, help=HELP)


def hooked(ops: Iterable[Op], model: nn.Module) -> Iterator[Refusal]:
    """What it costs that linears do more than multiply: they have hooks, or a forward of their own."""
    modules = dict(model.named_modules())
    for op in ops:
        module = modules.get(op.path) if isinstance(op, Keep) else None
        if isinstance(module, nn.Linear | nn.Embedding) and changed(module):
            extra = [*module._forward_pre_hooks.values(), *module._forward_hooks.values(), vars(module).get("forward")]
            code = next((one.__code__ for one in extra if isinstance(one, FunctionType)), None)
            place = Place.of(code)
            told = "it has hooks or a forward of its own, so it stays as its author made it, whole on every rank"
            yield Refusal("fusion", Reason.USED_ELSEWHERE, told, op.path, place, help=INSTEAD)


def _reads(calls: Iterable[Call]) -> Iterator[fx.Node]:
    for call in calls:
        for node in call.graph.nodes:
            if node.op == "get_attr" and str(node.target).rpartition(".")[0] != call.path:
                own = call.module._parameters.values()  # a tied one goes by the name that it has elsewhere
                if not any(node.meta.get("value") is value for value in own):
                    yield node
