"""Masks in rows of other lengths than are looked at, and in models whose checkpoints hold other numbers.

A forward may make one mask for short rows and another for long ones, or read a window from a buffer that is stored.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

from hfspeed.pattern.span import EVERYTHING, ODD, Span, sees
from hfspeed.planner.counts import MOST, asked_of

Calls = dict[str, list[tuple[Span | None, Any]]]
"""By module, the span of each call of attention, ``None`` where it got no mask, and the window it was told."""
KINDS: Final = 6
"""Kinds of rows that are looked at; each takes a run."""


def kinds_of_rows(model: nn.Module) -> list[list[int]]:
    """Rows by how the forward tells them apart: the numbers of tokens of each kind, up to `MOST`, in order."""
    asked = asked_of(model)
    if asked is None:
        return [list(range(1, MOST + 1))]
    kinds = asked.kinds()
    return sorted((torch.nonzero(kinds == kind).flatten() + 1).tolist() for kind in {*kinds.tolist()})


def with_other_buffers(model: nn.Module) -> Iterator[nn.Module]:
    """A copy in which every buffer that a checkpoint holds has other numbers; none if there are no such buffers."""
    stored, other = model.state_dict().keys(), copy.deepcopy(model)
    buffers = [value for name, value in other.named_buffers() if name in stored and value.dtype is not torch.bool]
    for value in buffers:
        value.data = value * 1.25 + 0.125 if value.is_floating_point() else value + 3
    if buffers:
        yield other


def united(runs: list[tuple[int, Calls]]) -> Calls:
    """What every row may see: as in the longest, if shorter ones show the same as far as they go, else it is odd.

    Args:
        runs: the most tokens of rows of a kind, and what one of the kind showed.
    """
    most, longest = max(runs, key=lambda run: run[0])
    found = {path: list(calls) for path, calls in longest.items()}
    for rows, calls in runs:
        for path, others in calls.items():
            mine = found.get(path, [])
            if len(mine) != len(others):
                found[path] = [(ODD, window) for _, window in others]
                continue
            for number, (one, other) in enumerate(zip(mine, others, strict=True)):
                if not _alike(one[0] or EVERYTHING, other[0] or EVERYTHING, min(rows, most)):
                    mine[number] = ODD, one[1]
    return found


def _alike(one: Span, other: Span, rows: int) -> bool:
    """Whether they show the same in a row of so many tokens."""
    if one == other or one.odd or other.odd:
        return one == other
    queries, keys = torch.arange(rows - 1, 0, -max(1, rows // 8))[:, None], torch.arange(rows)[None]
    return torch.equal(sees(one, queries, keys), sees(other, queries, keys))
