"""The line by which a wrapper does more than turn each hidden state into logits."""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from torch import fx, nn

from hfspeed.graph.call import Call
from hfspeed.graph.nodes import function_name, module_of
from hfspeed.graph.record import record
from hfspeed.graph.tensors import pairs
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.study import Study
from hfspeed.planner.ways import line
from hfspeed.reference.run import stands_in
from hfspeed.refusal import Reason, Refusal

ROWS: Final = 251
"""Hidden states that the wrapper is given: many, and no size of a model."""
NEAR: Final = 1e-9
HELP: Final = "let the wrapper make logits of each hidden state by itself; what tokens share belongs in the base model"


def blamed_line(small: Study, plan: Plan) -> Refusal | None:
    """Where the wrapper reads token ids, which it is not given for logits, or where rows do not go with their places.

    ``None`` where nothing of the kind is seen.
    """
    if plan.wrapper.ending is not None:
        return _behind(small.recording.calls[plan.wrapper.base], plan.wrapper.ending.at)
    root = small.recording.calls[""]
    if (node := _ids(root)) is not None:
        text = f"`{_name(node)}` of the wrapper reads the token ids, which are not known where logits are made"
        return Refusal("model", Reason.WRAPPER_NOT_ROWWISE, text, "", line(node) or place_of(root, node), help=HELP)
    try:
        one, other = (_recorded(small, plan, shift) for shift in (0, 1))
    except AUTHOR_ERRORS:
        return None
    for node, twin in zip(one.graph.nodes, other.graph.nodes, strict=False):
        if (node.op, str(node.target)) != (twin.op, str(twin.target)):
            return None
        if any(not _goes_along(a, b) for a, b in pairs(node.meta.get("value"), twin.meta.get("value"))):
            text = f"by `{_name(node)}` the wrapper answers a row by its place, or by the rows beside it"
            return Refusal("model", Reason.WRAPPER_NOT_ROWWISE, text, "", line(node) or place_of(one, node), help=HELP)
    return None


def _behind(call: Call, at: str) -> Refusal | None:
    """The likeliest operation behind an ending: one that reads more than hidden states, or the first."""
    behind: list[fx.Node] = []
    for node in call.graph.nodes:
        if node.op == "call_module" and node.target == at:
            behind = [node]
        elif node.op != "output" and set(behind) & set(node.all_input_nodes):
            behind.append(node)
    told = behind[1:]
    mixed = [n for n in told if any(one not in behind and one.op != "get_attr" for one in n.all_input_nodes)]
    for node in [*mixed, *told][:1]:
        text = f"by `{_name(node)}` logits are made of more than the hidden state of their token"
        return Refusal("model", Reason.WRAPPER_NOT_ROWWISE, text, "", line(node) or place_of(call, node), help=HELP)
    return None


def _ids(root: Call) -> fx.Node | None:
    """The first operation of the wrapper itself on token ids, or on what is made of them alone."""
    known = {node for node in root.graph.nodes if node.op == "placeholder" and node.meta.get("argument") == "input_ids"}
    for node in root.graph.nodes:
        if node.op == "call_function" and known & set(node.all_input_nodes):
            return node
    return None


def _recorded(small: Study, plan: Plan, shift: int) -> Call:
    """The wrapper's own graph on many random hidden states, moved on by ``shift`` places."""
    model, source = copy.deepcopy(small.fresh), torch.Generator().manual_seed(0)
    size = int(plan.size)
    hidden = torch.randn(1, ROWS, size, generator=source, dtype=torch.float64).roll(shift, 1)
    with torch.no_grad(), arithmetic(torch.float64), stands_in(plan, model, hidden):
        return record(model, {"input_ids": None, "use_cache": False}).calls[""]


def _goes_along(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether ``other`` is ``one`` with its rows moved on by a place; what has no rows must stay what it is."""
    if one.shape != other.shape:
        return False
    moved = one.roll(1, list(one.shape).index(ROWS)) if ROWS in one.shape else one
    if not one.is_floating_point():
        return torch.equal(moved, other)
    return torch.allclose(moved, other, rtol=NEAR, atol=NEAR, equal_nan=True)


def _name(node: fx.Node) -> str:
    module: nn.Module | None = module_of(node)
    named: Any = function_name(node)
    return str(named or type(module).__name__)
