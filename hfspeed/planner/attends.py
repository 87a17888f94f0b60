"""Whether tokens depend on one another at all, as far as anybody can tell; if not, where attention may be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import fx

from hfspeed.errors import RefusedError
from hfspeed.graph.nodes import value_of
from hfspeed.graph.record import Call, Recording
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Attention, History, Plan, Recurrence
from hfspeed.planner.layers import without_layers
from hfspeed.planner.study import TOKENS, Study
from hfspeed.refusal import Reason, Refusal

BY_HAND = frozenset({
    Reason.NO_INTERFACE, Reason.MASK_NOT_CAUSAL, Reason.CALLED_TWICE_INTERFACE, Reason.VALUE_VARIES,
    Reason.CALLED_THROUGH_HELPER, Reason.USED_ELSEWHERE, Reason.NOT_A_PLAIN_CALL, Reason.UNSUPPORTED_SYNTAX,
    Reason.INPUT_WRITTEN,
})  # fmt: skip
"""What may be said of attention that is written out."""
KERNEL = "paged attention"
"""What is missed where attention runs as it is written."""
HELP = "call `ALL_ATTENTION_FUNCTIONS.get_interface(…)` in the attention's forward"


def mixes(name: str, plan: Plan, study: Study) -> None:
    """Refuse a model in which no token depends on another.

    Args:
        name: what the user called the model.
        plan: of the model.
        study: of the small model that stands for it.

    Raises:
        RefusedError: at the line that makes scores of queries and keys, if there is one.
    """
    if any(isinstance(op, Attention | Recurrence | History) for op in plan.ops):
        return
    no = without_layers(study.model)
    if no is None:
        found = "no module calls the attention interface"
        no = Refusal("attention", Reason.NO_INTERFACE, found, plan.architecture, help=HELP)
        for call, node in _scores(study.recording):
            found += ", and what is made of these scores is no softmax attention that could be served"
            no = Refusal("attention", Reason.NO_INTERFACE, found, call.path, place_of(call, node), help=HELP)
            break
    raise RefusedError(name, (no,))


def only_by_hand(no: RefusedError) -> bool:
    """Whether all that stands against a model is attention that its author wrote out, as no kernel computes it.

    Such a module may still be run as it is, on whole sequences.
    """
    return bool(no.refusals) and all(one.wanted == "attention" and one.reason in BY_HAND for one in no.refusals)


def slower(no: RefusedError) -> Iterator[Refusal]:
    """Why attention that runs as written is none for a kernel, and what to do: no longer a reason not to serve."""
    yield from (replace(one, wanted=KERNEL) for one in no.refusals)


def _scores(recording: Recording) -> Iterator[tuple[Call, fx.Node]]:
    """Values with a number for each token and each other token, for every head."""
    for call in recording.calls.values():
        for node in call.graph.nodes:
            shape = tuple(getattr(value_of(node), "shape", ())) if node.op == "call_function" else ()
            if len(shape) > 2 and shape[-2:] == (TOKENS, TOKENS):
                yield call, node
