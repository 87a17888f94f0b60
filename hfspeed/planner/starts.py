"""The number that a model gives the first token of a sequence, where it makes positions itself if it is given none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from hfspeed.graph.exact import Exact
from hfspeed.graph.record import Call, record
from hfspeed.planner.ends import table_of
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.reference.asking import ids_name


def first_position(study: Study) -> int | None:
    """How far the author's positions are ahead of those that count from 0; ``None`` if by no one number.

    The model is run with positions from 0 and without any. What differs among the whole numbers that its modules
    are called with must differ everywhere by the same.
    """
    if "position_ids" not in prompt(study.model, TOKENS):
        return 0
    given = {name: value for name, value in prompt(study.model, TOKENS).items() if name != "position_ids"}
    ids = (torch.arange(TOKENS)[None] * 7 + 3) % int(table_of(study.model).weight.shape[0])
    values = {} if study.real else {given[ids_name(study.model)]: ids}
    with Exact() if study.real else nullcontext():
        without = record(study.model, given, values=values, shut=study.shut)
    apart = {gap for path, call in without.calls.items() for gap in _gaps(call, study.recording.calls.get(path))}
    apart.discard(0)
    if len(apart) > 1:
        return None
    return apart.pop() if apart else 0


def _gaps(one: Call, other: Call | None) -> set[int | None]:
    """Differences between whole numbers given to a module in two runs."""
    if other is None:
        return set()
    theirs = {_slot(node): node.meta.get("shadow") for node in other.graph.nodes if "argument" in node.meta}
    found: set[int | None] = set()
    for node in (n for n in one.graph.nodes if "argument" in n.meta):
        mine, known = node.meta.get("shadow"), theirs.get(_slot(node))
        if known is None or not _whole(mine) or not _whole(known) or mine.shape[-1:] != known.shape[-1:]:
            continue
        gaps = (mine - known).flatten().unique().tolist()
        found.add(int(gaps[0]) if len(gaps) == 1 else None)
    return found


def _slot(node: Any) -> tuple[Any, int]:
    return node.meta["argument"], node.meta["number"]


def _whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32) and value.ndim > 0


def skipped(model: nn.Module) -> list[int]:
    """Tokens that a model which makes positions of token ids may leave out when it counts: padding."""
    padding = {m.padding_idx for m in model.modules() if isinstance(m, nn.Embedding) and m.padding_idx is not None}
    return sorted(padding)
