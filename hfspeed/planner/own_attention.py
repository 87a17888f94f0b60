"""The author's own eager attention and masks against the interface: what only they do must not be lost."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn

from hfspeed.graph.attend import causal
from hfspeed.graph.exact import Exact
from hfspeed.graph.record import record
from hfspeed.pattern.unreached import vetted_weights
from hfspeed.plan.paths import within
from hfspeed.planner.asked import own, unwritten
from hfspeed.planner.build import attending
from hfspeed.planner.eager_reads import HELP, USUAL, only_eager_knows
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import Study
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Reason, Refusal, Refused

PLAIN = "hfspeed_plain"
"""The name of an attention that ignores all that it can."""
TOKENS, SHORT = 40, 9
"""How many tokens are compared, and in how many operations are looked at."""
BOUND = 1e-3
"""Relative difference of logits that refuses; eager attention rounds its weights to float32."""
COARSE = 0.15
"""The same in bfloat16, for the quarter of the tokens that differ least: there rounding makes some hundredths,
while a router that chooses otherwise moves other tokens far."""


def differs(small: Study) -> Refusal | None:
    """A refusal if the small model answers otherwise with its own eager attention and masks, in three precisions."""
    if no := _unreached(small) or (_otherwise(small) if small.written else None):
        return no
    with torch.no_grad():
        ours = _ours(small)
        if by_name := _by_name(small, ours):
            return by_name
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            model = in_dtype(own(small), dtype)
            try:
                theirs = scores(model(**prompt(model, TOKENS)))
            except AUTHOR_ERRORS:
                continue  # it has no eager attention to compare with
            coarse = dtype is torch.bfloat16
            if (apart := _apart(theirs, ours, coarse)) <= (COARSE if coarse else BOUND):
                continue
            name = str(dtype).removeprefix("torch.")
            found = f"with its own eager attention, in {name}, the model answers otherwise, by {apart:.1e}"
            return Refusal("attention", Reason.KEYWORD_NOT_CONSUMED, found, type(model).__name__, help=HELP)
    return only_eager_knows(small)


def _otherwise(small: Study) -> Refusal | None:
    """A refusal if modules attend by their author's eager function, but that has not the last word.

    What transformers takes where nobody asks for an attention may ignore what the eager one is given. And where that
    one ignores it, so that plain attention gives the same, it was meant for another.
    """
    with torch.no_grad(), arithmetic(torch.float64):
        ours = scores(own(small)(**prompt(small.model, TOKENS)))
        usual, plain = unwritten(small, interface=False), unwritten(small, interface=True)
        with suppress(*AUTHOR_ERRORS):
            if (apart := distance(scores(usual(**prompt(usual, TOKENS))), ours)) > BOUND:
                return _two(small, f"its eager attention differs by {apart:.1e} from the one taken by default")
        asked: list[nn.Module] = []
        with suppress(*AUTHOR_ERRORS), attending(plain, PLAIN, partial(_plainly, asked)):
            if distance(scores(plain(**prompt(plain, TOKENS))), ours) <= BOUND and asked:
                return _two(small, "its eager attention ignores what it is given, and another may not")
    return None


def _two(small: Study, found: str) -> Refusal:
    help_ = "support one attention alone, or let all compute the same"
    return Refusal("attention", Reason.KEYWORD_NOT_CONSUMED, found, type(small.model).__name__, help=help_)


def _plainly(
    asked: list[nn.Module],
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_: Any,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention that takes a scale, and ignores all else; ``asked`` gets the modules that called it."""
    asked.append(module)
    return causal(module, query, key, value, scaling=keywords.get("scaling")), None


def _ours(small: Study) -> torch.Tensor:
    """Logits with our attention; in float64 throughout where code does not run that asks for float32 on its way."""
    try:
        found = scores(small.model(**prompt(small.model, TOKENS)))
    except AUTHOR_ERRORS:
        with arithmetic(torch.float64):
            found = scores(small.model(**prompt(small.model, TOKENS)))
    assert isinstance(found, torch.Tensor)
    return found


def _unreached(small: Study) -> Refusal | None:
    """A refusal if eager attention does to scores what no numbers of a proof would show."""
    model = own(small)
    try:
        with Exact():
            seen = record(model, prompt(model, SHORT), shut=small.shut)
        for path, call in seen.calls.items():
            for one in () if within(path, small.written) else (call, *seen.again.get(path, ())):
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


def _by_name(small: Study, ours: torch.Tensor) -> Refusal | None:
    """A refusal if the author's code asks whether its attention is called as transformers calls it by default.

    Our attention takes that name for once, so that nothing but the name differs.
    """
    model = own(small)
    try:
        with attending(model, USUAL):
            theirs = scores(model(**prompt(model, TOKENS)))
    except AUTHOR_ERRORS:
        return None
    if (apart := distance(ours, theirs)) <= BOUND:
        return None
    found = f"it answers otherwise, by {apart:.1e}, where its attention is called `{USUAL}`, as it is by default"
    help_ = "let no number depend on `_attn_implementation`"
    return Refusal("attention", Reason.VALUE_VARIES, found, type(model).__name__, help=help_)
