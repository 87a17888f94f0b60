"""The proof once more with a long prompt: tokens may meet, or positions matter, farther on than in short ones."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch

from hfspeed.emit import emitted
from hfspeed.graph.record import Call
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan, Positions
from hfspeed.planner.contest import Contest
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import Mismatch, arithmetic
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt, taken
from hfspeed.planner.study import TOKENS, TRIED, Study
from hfspeed.reference.asking import scores
from hfspeed.refusal import Place, Reason, Refusal

LONG: Final = 640
"""Tokens of the prompt, which comes in two pieces; so what is half of it apart is never in one row."""
SOME: Final = TRIED - 10
"""The same where tables end."""
HELP: Final = "let tokens see earlier ones through attention, or through a state, and not along the row"


def long_run(small: Study, plan: Plan, limit: int = 0) -> Refusal | None:
    """A refusal if the plan, run on a long prompt in pieces and beside others, gives other answers than its author.

    Where a model is another beyond some ``limit``, no longer prompt is served.
    """
    with torch.no_grad():
        most = _most(small, plan, limit)
        for many in (most, min(most, SOME)) if most > TOKENS else ():
            model = in_dtype(copy.deepcopy(small.fresh), torch.float64).eval()
            contest = Contest(plan, model, emitted(plan), torch.float64, longest=many)
            try:
                contest.author_runs()
                contest.ours(1, 1, f"a prompt of {many} tokens, in pieces beside others", contest.schedules()[1][1])
            except Mismatch as error:
                if math.isinf(error.error) and many > SOME:
                    continue  # tables of the small model may have no more rows, though its author does not mind
                no, told = error.refusal, f"with {error.how}: {error.refusal.found}"
                return Refusal("model", Reason.VALUE_VARIES, told, no.module, _line(small, no.module), help=HELP)
            break
    return None


def _line(small: Study, path: str) -> Place | None:
    """Where the module that differs, or the nearest above it that is not of torch's, is written."""
    while path and (path not in small.recording.calls or _of_torch(small.recording.calls[path])):
        path = path.rpartition(".")[0]
    return place_of(small.recording.calls[path]) if path in small.recording.calls else None


def _of_torch(call: Call) -> bool:
    return call.cls.__module__.startswith("torch.")


def _most(small: Study, plan: Plan, limit: int) -> int:
    """How many tokens the small model takes, up to `LONG`."""
    if limit or any(op.limit for op in plan.ops if isinstance(op, Positions)):
        return TOKENS

    def run(tokens: int) -> torch.Tensor:
        with arithmetic(torch.float64):
            return scores(copy.deepcopy(small.fresh)(**prompt(small.fresh, tokens)))

    try:
        shape = run(TOKENS).shape
    except AUTHOR_ERRORS:
        return TOKENS  # without a mask of its own, or in whatever other way, it was proven
    many = LONG if len(shape) == 3 and shape[1] == TOKENS else TRIED  # an author may give the last token's alone
    return taken(run, TOKENS, many)
