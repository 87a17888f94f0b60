"""Modules run on many rows at once: each row must be answered as in a smaller crowd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final

import torch
from torch import nn

from hfspeed.graph.nodes import is_attention
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import History, Plan, Recurrence
from hfspeed.plan.paths import within
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import BOUNDS, arithmetic
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.witness import distance
from hfspeed.refusal import Reason, Refusal

CUTS: Final = (0, TOKENS, 256, 512)
"""Where a crowd of rows is cut into smaller ones: few, many, and twice as many."""
LOUD: Final = (1.0, 4.0, 30.0)
"""What values are multiplied by: loud ones make routers decided, as trained weights do."""
SPREAD: Final = 0.3
"""How far rows that are made of one lie apart, so that some of them are nearly undecided."""
HELP: Final = "let each token be answered by itself; limits of capacity and penalties for load are for training"
Turn = Callable[[torch.Tensor], torch.Tensor]


def crowds(small: Study, plan: Plan | None = None) -> tuple[Refusal, ...]:
    """Refusals of modules if how many other tokens there are changes an answer.

    A limit may lie above the few tokens of a proof, so many rows are run: half of them one and the same, which crowds
    whatever it is sent to, and half of them any. These are modules that nobody looks into, such as experts, and with a
    ``plan`` all others that it gives tokens side by side.
    """
    apart = [op.path for op in plan.ops if isinstance(op, History | Recurrence)] if plan else []
    found: dict[type[nn.Module], Refusal] = {}
    for path, call in small.recording.calls.items():
        ways = LOUD if call.closed else LOUD[:1] if plan and _alone(small, path, apart) else ()
        if call.cls not in found and any(_differs(small, call, loud) for loud in ways):
            told = f"`{call.cls.__name__}` answers a token otherwise among many, and several sequences share a row"
            found[call.cls] = Refusal("model", Reason.VALUE_VARIES, told, path, place_of(call), help=HELP)
    return tuple(found.values())


def _alone(small: Study, path: str, apart: list[str]) -> bool:
    """Whether a module of the author's is given tokens side by side, and lets none of them see another."""
    call = small.recording.calls[path]
    if not path or path in small.recording.again or call.cls.__module__.startswith("torch."):
        return False
    if any(within(one, [path]) or within(path, [one]) for one in apart):
        return False
    inside = [one for at, one in small.recording.calls.items() if within(at, [path])]
    return not any(is_attention(node) for one in inside for node in one.graph.nodes)


def _differs(small: Study, call: Call, loud: float) -> bool:
    module, source = copy.deepcopy(small.model.get_submodule(call.path)), torch.Generator().manual_seed(0)
    count = CUTS[-1]
    rows = torch.randint(0, TOKENS, (count,), generator=source)
    rows[: CUTS[2]] = 0

    def crowd(value: torch.Tensor) -> torch.Tensor:
        many = value.index_select(_at(value, TOKENS), rows)
        if not value.is_floating_point():
            return many
        noise = torch.randn(many.shape, generator=source, dtype=many.dtype) * SPREAD
        noise.narrow(_at(value, TOKENS), 0, CUTS[2]).zero_()
        return many * (1 + noise) * loud

    given = _turned((call.args, call.kwargs), TOKENS, crowd)
    sizes = [stop - start for start, stop in pairwise(CUTS)]
    try:
        with torch.no_grad(), arithmetic(torch.float64):
            whole = _answers(module, given)
            parts = [_answers(module, _part(given, start, stop)) for start, stop in pairwise(CUTS)]
    except AUTHOR_ERRORS:
        return False  # what takes no other number of tokens says so when it is served
    for one, *several in zip(whole, *parts, strict=False):
        at = _at(one, count) if count in one.shape else one.ndim  # else it has no rows
        alike = at < one.ndim and [part.shape[at] for part in several if part.ndim == one.ndim] == sizes
        if alike and not distance(one, torch.cat(several, at)) <= BOUNDS[torch.float64]:
            return True
    return False


def _part(given: Any, start: int, stop: int) -> Any:
    return _turned(given, CUTS[-1], lambda one: one.narrow(_at(one, CUTS[-1]), start, stop - start))


def _answers(module: nn.Module, given: Any) -> list[torch.Tensor]:
    args, kwargs = given
    return list(tensors(module(*args, **kwargs)))


def _turned(value: Any, rows: int, turn: Turn) -> Any:
    """``value`` with every tensor turned that has so many rows."""
    if isinstance(value, torch.Tensor):
        return turn(value) if rows in value.shape else value
    if isinstance(value, dict):
        return {name: _turned(one, rows, turn) for name, one in value.items()}
    return type(value)(_turned(one, rows, turn) for one in value) if type(value) in (tuple, list) else value


def _at(value: torch.Tensor, rows: int) -> int:
    return list(value.shape).index(rows)
