"""Whether a long row of tokens takes the same way as a short one: side by side, short prompts make long rows."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from hfspeed.graph.record import Recording, record
from hfspeed.planner.build import build
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import BOUNDS, arithmetic
from hfspeed.planner.study import TOKENS, Study, prompt
from hfspeed.planner.ways import other_ways
from hfspeed.planner.witness import distance
from hfspeed.refusal import Reason, Refusal

LONG = 1 << 17
"""Tokens of the row that is tried on meta, where length costs nothing; hardly a batch is longer."""
RUN = 1 << 10
"""Tokens that are run with numbers, to see whether another way gives the same."""


def long_rows(small: Study) -> tuple[Refusal, ...]:
    """Refusals of classes that run other operations on a long row, unless they compute the same by them."""
    if small.recording.reads:
        return ()  # such a forward does not run on meta without values, and was looked at with late positions
    model = build(type(small.model), small.model.config, device="meta", interface=small.interface)
    try:
        short, more = (record(model, prompt(model, tokens)) for tokens in (TOKENS, 3 * TOKENS))
        if _count(short) != _count(more):
            return ()  # it loops over tokens, and a long row would take as long
        middle, long = (record(model, prompt(model, tokens)) for tokens in (RUN, LONG))
        differing = _differing(short, long)
        if not differing or (not _differing(middle, long) and _same(small.model)):
            return ()
    except AUTHOR_ERRORS:
        return ()  # a forward that does not take long rows says so when it is served
    found = "on a long row of tokens it runs other operations than on a short one, and computes something else"
    help_ = "make it a function of each token and its position; several sequences share a row"
    return tuple(Refusal("model", Reason.VALUE_VARIES, found, one.module, one.place, help=help_) for one in differing)


def _count(recording: Recording) -> int:
    """Operations that were run."""
    return sum(len(call.graph.nodes) for call in recording.calls.values())


def _differing(one: Recording, other: Recording) -> tuple[Refusal, ...]:
    return other_ways(one, other, layers=False) or other_ways(other, one, layers=False)


def _same(model: Any) -> bool:
    """The first tokens of a long row get the logits that they get in a short one."""
    for exact in (arithmetic(torch.float64), nullcontext()):  # a table made anew is more exact than the first one
        with torch.no_grad(), exact:
            outs = [model(**prompt(model, tokens)) for tokens in (TOKENS, RUN)]
        first, longer = (out.logits if hasattr(out, "logits") else out[0] for out in outs)
        if distance(first, longer[:, :TOKENS]) <= BOUNDS[torch.float64]:
            return True
    return False
