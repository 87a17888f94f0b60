"""Positions that modules count along their row, where only large ones matter: no short prompt shows it."""

from __future__ import annotations

import copy
import linecache
import sys
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from hfspeed.graph.positions import author_of, forward_code, place_at
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Place, Reason, Refusal

NEAR = 5
FAR = tuple((1 << power) + NEAR for power in range(7, 18, 2))
"""How far counting is begun later; thresholds and scales in models are usually powers of two."""
BOUND = 1e-7


class _Later(TorchFunctionMode):
    """Numbers that are counted from 0 to the number of tokens begin at ``by``."""

    def __init__(self, by: int, left: frozenset[Any], only: Place | None = None) -> None:
        super().__init__()
        self.by, self.left, self.only = by, left, only
        self.places: list[Place] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func not in _COUNTING or not isinstance(out, torch.Tensor) or out.numel() != TOKENS or out.is_complex():
            return out
        first = int(out.flatten()[0])
        if first not in {0, 1} or not torch.equal(out.flatten().long(), torch.arange(TOKENS) + first):
            return out
        frame = author_of(sys._getframe(1))
        if frame is None or frame.f_code in self.left:
            return out
        place = place_at(frame)
        self.places.append(place)
        return out + self.by if self.only in (None, place) else out


_COUNTING = {torch.arange, torch.cumsum, torch.Tensor.cumsum}


def far(small: Study) -> Refusal | None:
    """A refusal if a model answers otherwise where its modules count from far on, and not from a little later.

    What already differs a little later would be found by proofs, which put sequences behind one another in a row.
    """
    left = frozenset(
        code
        for path, changes in small.positions.items()
        if any(change.kind == "replace" for change in changes)
        and (code := forward_code(type(small.model.get_submodule(path)))) is not None  # type: ignore[arg-type]
    )
    given = prompt(small.fresh, TOKENS)
    with torch.no_grad(), arithmetic(torch.float64):
        try:
            wanted, places = _run(small, given, 0, left)
            if not places or not distance(wanted, _run(small, given, NEAR, left)[0]) <= BOUND:
                return None
        except AUTHOR_ERRORS:
            return None
        for by in FAR:
            try:
                apart = distance(wanted, _run(small, given, by, left)[0])
            except AUTHOR_ERRORS:
                break  # there are no positions as large as these
            if not apart <= BOUND:
                alone = (p for p in places if not distance(wanted, _run(small, given, by, left, p)[0]) <= BOUND)
                return _told(small, next(alone, places[0]), by, apart)
    return None


def _run(
    small: Study, given: dict[str, Any], by: int, left: frozenset[Any], only: Place | None = None
) -> tuple[torch.Tensor, list[Place]]:
    with _Later(by, left, only) as later:
        logits: torch.Tensor = scores(copy.deepcopy(small.fresh)(**given))
    return logits, later.places


def _told(small: Study, place: Place, by: int, apart: float) -> Refusal:
    line = linecache.getline(place.file, place.line).strip()
    found = f"`{line}` counts along the row: from {by} on the model answers otherwise, by {apart:.1e}"
    help_ = "take `position_ids` from the caller: several sequences share a row, and tokens come one by one"
    return Refusal("model", Reason.POSITIONS_NOT_READ, found, type(small.model).__name__, place, help=help_)
