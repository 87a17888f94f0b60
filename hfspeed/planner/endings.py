"""Whether a model that is base model and head in one answers a long row by hidden states of each token alone."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Final

import torch
from torch import fx

from hfspeed.graph.flow import behind
from hfspeed.graph.nodes import function_name
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Plan
from hfspeed.planner.lengths import unusual
from hfspeed.planner.mismatch import BOUNDS, arithmetic
from hfspeed.planner.own_attention import BOUND
from hfspeed.planner.prompts import prompt, taken
from hfspeed.planner.rows import RUN
from hfspeed.planner.study import TOKENS, Study
from hfspeed.planner.ways import line
from hfspeed.planner.witness import distance
from hfspeed.planner.wrapper import whereabouts
from hfspeed.reference.asking import scores
from hfspeed.reference.ending import Tail
from hfspeed.reference.run import watched
from hfspeed.refusal import Reason, Refusal

HELP: Final = "let neither hidden states nor logits of a token hang on how many tokens there are"
SIZES: Final = "let no branch depend on a size, or name the attribute that it depends on in the configuration"


def long_answers(small: Study, plan: Plan) -> tuple[Refusal, ...]:
    """A refusal if hidden states of first tokens, or logits made of hidden states, are others in a long row.

    Logits are made for one token at a time where such a model is served, whatever its forward asks of the row.
    """
    if plan.wrapper.ending is None:
        return ()
    if (no := _beside(small, plan)) is not None:
        return (no,)
    most = taken(lambda tokens: _answers(small, plan, tokens), TOKENS, RUN)
    for tokens in unusual(small):
        if tokens <= most and (apart := _apart(small, plan, tokens, most)):
            return (apart,)
    for exact in (True, False):  # a table made anew is more exact than the first one
        (short, _, _), (hidden, logits, ours) = (_answers(small, plan, many, exact) for many in (TOKENS, most))
        bound = BOUNDS[torch.float64]
        if distance(short, hidden[:, :TOKENS]) <= BOUND and distance(logits, ours) <= bound:
            return ()
    return (_told(small, plan, most),)


def _apart(small: Study, plan: Plan, tokens: int, most: int) -> Refusal | None:
    """A refusal if a row of so many tokens is answered otherwise than the beginning of a long one."""
    (hidden, logits, ours), (longer, _, _) = (_answers(small, plan, many) for many in (tokens, most))
    same = distance(hidden, longer[:, :tokens]) <= BOUND and distance(logits, ours) <= BOUNDS[torch.float64]
    return None if same else _told(small, plan, tokens)


def _told(small: Study, plan: Plan, tokens: int) -> Refusal:
    found = f"in a row of {tokens} tokens it answers otherwise than by the hidden state of each token"
    call = small.recording.calls[plan.wrapper.base]
    return Refusal("model", Reason.VALUE_VARIES, found, call.path, place_of(call), help=HELP)


def other_forwards(full: Study, plan: Plan, proven: Plan) -> tuple[Refusal, ...]:
    """Refusals of rewritten forwards that are not, letter for letter, those that were run in the proof."""
    known = {(one.module, one.base, one.method, one.text) for one in proven.forwards}
    found = "at full size its forward is rewritten otherwise than that of the small model, which was proven"
    told = []
    for one in plan.forwards:
        if (one.module, one.base, one.method, one.text) not in known:
            call = full.recording.calls.get(full.recording.same(one.paths[0]))
            place = place_of(call) if call is not None else None
            told.append(Refusal("proof", Reason.CANNOT_RUN, found, one.paths[0], place, help=SIZES))
    end, other = plan.wrapper.ending, proven.wrapper.ending
    if end is not None and (other is None or other.at != end.at):
        told.append(Refusal("proof", Reason.CANNOT_RUN, found, plan.wrapper.base, help=SIZES))
    return tuple(told)


def _beside(small: Study, plan: Plan) -> Refusal | None:
    """A refusal if logits are made of anything else that follows the tokens: their ids, positions, other values.

    Where logits are made ids are not known, and every token is the first of its row, so no prompt need show it.
    """
    base = plan.wrapper.base
    _, end = whereabouts(small.model, small.recording)
    assert end is not None
    around = small.recording.calls[""].graph.nodes
    outer = [("", node) for node in around if base and node.op == "call_module" and node.target == base]
    for path, start in ((base, end.hidden), *outer):
        call, made = small.recording.calls[path], {start}
        for node in call.graph.nodes:
            if node.op == "output" or not made & set(node.all_input_nodes):
                continue
            made.add(node)
            if any(n not in made and _follows(n) for n in node.all_input_nodes):
                text = f"by `{function_name(node) or node.target}` logits are made of more than hidden states"
                place = line(node) or place_of(call, node)
                return Refusal("logits", Reason.WRAPPER_NOT_ROWWISE, text, path, place, help=HELP)
    return None


def _follows(node: fx.Node) -> bool:
    """Whether it has a number for each token, or is made of what the forward was given."""
    if any(TOKENS in value.shape for value in tensors(node.meta.get("value"))):
        return True
    return any(one.op == "placeholder" for one in behind(node))


def _answers(
    small: Study, plan: Plan, tokens: int, exact: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states; logits of the last token; and what is made of its hidden state."""
    model = copy.deepcopy(small.fresh)
    seen: list[torch.Tensor] = []
    hook = watched(plan, model, seen)
    with torch.no_grad(), arithmetic(torch.float64) if exact else nullcontext():
        found = scores(model(**prompt(model, tokens)))
        hook.remove()
        ours = Tail(copy.deepcopy(small.fresh), plan)(seen[-1][0, -1:])
    return seen[-1], found.reshape(-1, found.shape[-1])[-1:], ours


