"""Numbers that a plan takes over from modules, against those that the modules take in the dtypes that are served."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from typing import Any, Final

import torch
from torch import fx

from hfspeed.graph.nodes import CASTS, function_name
from hfspeed.graph.positions import place_in
from hfspeed.graph.record import Call, record
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Attention, Embed, Gated, Plan
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.refusal import Reason, Refusal

SERVED: Final = (torch.float32, torch.bfloat16, torch.float16)
"""What is served in."""
BEYOND: Final = 1e4
"""What is larger, as the largest number of a dtype is, says only that something is hidden."""
_HELP = "take the same numbers in every dtype, by name in the configuration"


def baked(small: Study, plan: Plan) -> tuple[Refusal, ...]:
    """A refusal if a module whose numbers are the plan's takes other ones in another dtype than in the proof.

    What stays the author's code decides by itself what to take, whatever it is served in. Norms are measured in each
    dtype, and stay as written where they differ.
    """
    first = _calls(small, torch.float64)
    if first is None:
        return ()
    taken = set(_taken(plan, list(first)))
    for dtype in SERVED:
        other = _calls(small, dtype) or {}
        for path in sorted(taken & first.keys() & other.keys()):
            if (no := _unlike(first[path], other[path], dtype)) is not None:
                return (no,)
    return ()


def _taken(plan: Plan, paths: Collection[str]) -> Iterator[str]:
    for op in plan.ops:
        if isinstance(op, Embed) or (isinstance(op, Attention) and op.measured):
            yield op.path
        elif isinstance(op, Gated):
            above = op.path.rpartition(".")[0]
            yield from (path for path in paths if path == above or path.startswith(f"{above}."))


def _calls(small: Study, dtype: torch.dtype) -> dict[str, Call] | None:
    model = in_dtype(copy.deepcopy(small.fresh), dtype)
    try:
        return record(model, prompt(model, TOKENS), shut=small.shut).calls
    except AUTHOR_ERRORS:
        return None  # it does not run in this dtype, which the engine will tell


def _unlike(one: Call, other: Call, dtype: torch.dtype) -> Refusal | None:
    ours, theirs = (_steps(call) for call in (one, other))
    if [told for told, _ in ours] == [told for told, _ in theirs]:
        return None
    pairs = zip(ours, theirs, strict=False)
    node = next((there for (mine, _), (told, there) in pairs if mine != told), None)
    place = (place_in(node.meta.get("stack") or ()) if node is not None else None) or place_of(other, node)
    return _told(other, dtype, place)


def _steps(call: Call) -> list[tuple[tuple[Any, ...], fx.Node]]:
    """What is done and with which numbers, casts aside."""
    return [
        ((node.op, function_name(node) or str(node.target), _numbers(node)), node)
        for node in call.graph.nodes
        if node.op in {"call_function", "call_module"} and function_name(node) not in CASTS
    ]


def _numbers(node: fx.Node) -> tuple[Any, ...]:
    given = (*node.args, *node.kwargs.values())
    return tuple(a for a in given if isinstance(a, bool | int | str) or (isinstance(a, float) and abs(a) < BEYOND))


def _told(call: Call, dtype: torch.dtype, place: Any) -> Refusal:
    name = str(dtype).removeprefix("torch.")
    found = f"`{call.cls.__name__}` takes other numbers in {name} than in float64, in which it was measured"
    return Refusal("model", Reason.VALUE_VARIES, found, call.path, place, help=_HELP)
