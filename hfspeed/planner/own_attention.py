"""The author's own eager attention and masks against the interface: what only they do must not be lost."""

from __future__ import annotations

import math

import torch

from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import is_attention
from hfspeed.graph.record import record
from hfspeed.pattern.unreached import vetted_weights
from hfspeed.planner.asked import own
from hfspeed.planner.build import eager
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.study import Study, prompt
from hfspeed.refusal import Reason, Refusal, Refused

TOKENS, SHORT = 40, 9
"""How many tokens are compared, and in how many operations are looked at."""
BOUND = 1e-3
"""Relative difference of logits that refuses; eager attention rounds its weights to float32."""
COARSE = 0.15
"""The same in bfloat16, for the quarter of the tokens that differ least: there rounding makes some hundredths,
while a router that chooses otherwise moves other tokens far."""

MORE = ("softcap", "s_aux")


def differs(small: Study) -> Refusal | None:
    """A refusal if the small model answers otherwise with its own eager attention and masks, in three precisions."""
    if no := _unreached(small):
        return no
    asked = [("eager", dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)]
    asked += [("sdpa", torch.float64)] if getattr(small.model, "_supports_sdpa", False) and not _more(small) else []
    with torch.no_grad():
        ours = small.model(**prompt(small.model, TOKENS)).logits
        for attention, dtype in asked:
            model = in_dtype(own(small), dtype)
            eager(model, attention)
            try:
                theirs = model(**prompt(model, TOKENS)).logits
            except AUTHOR_ERRORS:
                continue  # it has no eager attention to compare with
            coarse = dtype is torch.bfloat16
            if (apart := _apart(theirs, ours, coarse)) <= (COARSE if coarse else BOUND):
                continue
            name = str(dtype).removeprefix("torch.")
            found = f"with its own {attention} attention, in {name}, the model answers otherwise, by {apart:.1e}"
            help_ = "hand everything attention needs (scaling, sliding_window, …) to the interface by keyword"
            return Refusal("attention", Reason.KEYWORD_NOT_CONSUMED, found, type(model).__name__, help=help_)
    return None


def _more(small: Study) -> bool:
    """Whether attention is told what the usual kernel of torch has no word for; eager attention alone does it then."""
    every = [*small.recording.calls.values(), *(one for calls in small.recording.again.values() for one in calls)]
    told = (node.kwargs.get(name) for call in every for node in call.graph.nodes if is_attention(node) for name in MORE)
    return any(value is not None for value in told)


def _unreached(small: Study) -> Refusal | None:
    """A refusal if eager attention does to scores what no numbers of a proof would show."""
    model = own(small)
    try:
        with Exact():
            seen = record(model, prompt(model, SHORT), shut=small.shut)
        for path, call in seen.calls.items():
            for one in (call, *seen.again.get(path, ())):
                vetted_weights(one, SHORT)
    except Refused as no:
        return no.refusal
    except AUTHOR_ERRORS:
        return None
    return None


def _apart(theirs: torch.Tensor, ours: torch.Tensor, coarse: bool) -> float:
    """How far logits are apart; infinite if that cannot be said. Equal infinities are equal."""
    alike = theirs.isinf() & (theirs == ours)
    theirs, ours = theirs.double().masked_fill(alike, 0.0), ours.double().masked_fill(alike, 0.0)
    gaps, sizes = (theirs - ours).abs(), theirs.abs()
    least = gaps.flatten(0, -2).mean(-1).quantile(0.25)
    apart = float(least / sizes.mean() if coarse else gaps.max() / sizes.max())
    return apart if math.isfinite(apart) else math.inf
