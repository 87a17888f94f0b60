"""Modules that give as many rows of a table as there are tokens: positions look rows up, so all of them are needed."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from hfspeed.graph.exact import Exact
from hfspeed.graph.record import Call
from hfspeed.pattern.counted import counted
from hfspeed.pattern.edit import Change
from hfspeed.pattern.table import called, named
from hfspeed.plan import Positions
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.wrapper import base_of, takes_positions
from hfspeed.refusal import Refused

FEW: Final = 12
LEAST: Final = 64
"""Tables that agree for fewer rows than these are no tables."""
MOST: Final = 1 << 17
"""Rows that are tried; a table that agrees so far is one of any length."""
_BOUND: Final = 1e-6


def tables(study: Study) -> list[Positions]:
    """Ops for all such modules of a model: in a row of several sequences the number of tokens says nothing."""
    found = []
    for path, call in study.recording.calls.items():
        op = None if path in study.recording.again else _asked(call)
        if op is None:
            continue
        limit = _limit(study.twin.get_submodule(path), op)
        if limit >= LEAST:
            found.append(replace(op, limit=0 if limit == MOST else limit))
    return found


def rowwise(study: Study) -> dict[str, list[Change]]:
    """Changes that hand positions to whoever takes first rows of a table; none where that cannot be done."""
    if study.rowwise is None:
        base = base_of(study.model, study.recording)
        study.rowwise = {}
        if not takes_positions(study.model, study.recording, base):
            with contextlib.suppress(Refused):
                study.rowwise = counted(study.recording, base, TOKENS, [op.path for op in tables(study)])
    return study.rowwise


def _asked(call: Call) -> Positions | None:
    """The op, if the module is asked for as many rows as there are tokens, and gives as many."""
    module = call.module
    if any(True for _ in module.children()) or any(True for _ in module.parameters()):
        return None
    if not _are_rows(call.output):
        return None
    try:
        given = {name: value for name, value in named(module, call.args, call.kwargs).items() if value is not None}
    except TypeError:
        return None
    counts = [name for name, value in given.items() if type(value) is int and value == TOKENS]
    values = [name for name, value in given.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]
    if len(counts) != 1 or len(values) > 1 or len(given) != 1 + len(values):
        return None
    return Positions(call.path, counts[0], "".join(values), counted=True)


def _are_rows(output: Any) -> bool:
    values = output if isinstance(output, (tuple, list)) else (output,)
    return bool(values) and all(
        isinstance(v, torch.Tensor) and v.is_floating_point() and list(v.shape).count(TOKENS) == 1 for v in values
    )


def _limit(module: nn.Module, op: Positions) -> int:
    """The most rows of which the first are the same as in a table of few, whatever a checkpoint holds."""
    try:
        with torch.no_grad(), torch.device("cpu"), Exact():
            few, module = _made(module, op, FEW), _unloaded(module)
            if _begins(_made(module, op, MOST), few):
                return MOST
            same, other = FEW, MOST
            while other - same > 1:
                middle = (same + other) // 2
                same, other = (middle, other) if _begins(_made(module, op, middle), few) else (same, middle)
    except AUTHOR_ERRORS:
        return 0
    return same


def _unloaded(module: nn.Module) -> nn.Module:
    """The same, and no number in it that a checkpoint would replace: tables are made before one is loaded."""
    twin = copy.deepcopy(module)
    for name, buffer in twin._buffers.items():
        if buffer is not None and buffer.is_floating_point() and name not in twin._non_persistent_buffers_set:
            twin._buffers[name] = torch.full_like(buffer, float("nan"))
    return twin


def _made(module: nn.Module, op: Positions, count: int) -> tuple[torch.Tensor, ...]:
    """So many rows, of a module that was never asked before."""
    made = called(copy.deepcopy(module), op, count, torch.zeros(1, 1, 1, dtype=torch.float64))
    return made if isinstance(made, tuple) else tuple(made) if isinstance(made, list) else (made,)


def _begins(many: tuple[torch.Tensor, ...], few: tuple[torch.Tensor, ...]) -> bool:
    for one, other in zip(many, few, strict=True):
        at = list(other.shape).index(FEW)
        first = one.narrow(at, 0, min(FEW, one.shape[at]))
        if first.shape != other.shape or one.dtype != other.dtype or not torch.allclose(first, other, 0, _BOUND):
            return False
    return True
