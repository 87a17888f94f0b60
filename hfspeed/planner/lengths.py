"""Branches on how many tokens a row has: a prompt of another length goes another way, and several share a row."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Iterator
from typing import Final

import torch

from hfspeed.planner.counts import Asked, asked_of
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, TRIED, Study
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Place, Reason, Refusal

LONGEST: Final = 1 << 11
"""The most tokens that are run with numbers."""
TRIES: Final = 12
"""Lengths that are tried; each takes a run."""
BOUND: Final = 1e-7


def lengths(small: Study) -> Refusal | None:
    """A refusal if rows of some lengths are answered otherwise than rows that are one token or a few longer."""
    with torch.no_grad(), arithmetic(torch.float64):
        asked = asked_of(small.fresh)
        for length, usual, place in _unusual(asked) if asked else ():
            try:
                one, other = _logits(small, length), _logits(small, usual)
            except AUTHOR_ERRORS:
                continue  # a row that is longer than tables is refused when it is served
            if one.shape[1] != length:
                break  # of the last token alone; see `hfspeed.planner.endings`
            if not (apart := distance(one, other[:, :length])) <= BOUND:
                return _told(small, length, usual, place, apart)
    return None


def unusual(small: Study) -> list[int]:
    """Numbers of tokens at which a forward takes a way that rows of most numbers do not take."""
    with torch.no_grad(), arithmetic(torch.float64):
        asked = asked_of(small.fresh)
        return [length for length, _, _ in _unusual(asked)] if asked else []


def _unusual(asked: Asked) -> Iterator[tuple[int, int, Place | None]]:
    """Lengths at which a way is taken that the usual rows do not take, a longer one that differs, and where."""
    branches = list(asked.branches.values())
    kinds = asked.kinds()
    for entry in asked.entries:
        kinds[entry - 1] = -entry
    known = {int(kinds[tokens - 1]) for tokens in (1, TOKENS, TRIED, LONGEST // 2)}
    tried = 0
    for at, kind in enumerate(kinds[:LONGEST].tolist()):
        if kind in known or tried == TRIES:
            continue
        known.add(kind)
        tried += 1
        usual = next((later for later in range(at + 1, LONGEST) if kinds[later] != kind), LONGEST - 1)
        place = next((one.place for one in branches if one.answers[at] != one.answers[usual]), None)
        yield at + 1, usual + 1, place or asked.entries.get(at + 1)


def _logits(small: Study, tokens: int) -> torch.Tensor:
    return scores(copy.deepcopy(small.fresh)(**prompt(small.fresh, tokens)))


def _told(small: Study, length: int, usual: int, place: Place | None, apart: float) -> Refusal:
    line = f"`{linecache.getline(place.file, place.line).strip()}` asks how many tokens a row has: " if place else ""
    found = f"{line}in a row of {length} they are answered otherwise than in one of {usual}, by {apart:.1e}"
    help_ = "make it a function of each token and its position; several sequences share a row"
    return Refusal("model", Reason.VALUE_VARIES, found, type(small.model).__name__, place, help=help_)
