"""The author's model asked the ways that generation asks: only one way is served, so they must not matter."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from hfspeed.graph.tensors import held
from hfspeed.planner.build import build, eager
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import Study
from hfspeed.planner.witness import distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Reason, Refusal

TOKENS = 12
STEPS = 3
"""Tokens that are asked for one by one, behind a cache."""
BOUND = 1e-5
"""Relative difference that refuses; caches may be kept in float32."""


def otherwise(small: Study) -> Refusal | None:
    """A refusal if the small model answers otherwise with a mask of ones, with a cache, one token, or a few more times.

    Its own attention is used, eager where it has that. A way that it cannot be asked in is left out.
    """
    plain = prompt(small.model, TOKENS)
    with torch.no_grad(), arithmetic(torch.float64):
        fresh, model, wanted = _asked(small, plain)
        for how, ask in _ways(small, fresh, plain):
            try:
                found = ask()
            except AUTHOR_ERRORS:
                continue
            if not (apart := distance(wanted[:, : found.shape[1]], found)) <= BOUND:
                return _told(small, f"it answers otherwise {how}, by {apart:.1e}")
        before = _plain(model)
        _logits(model(**plain))
        if changed := [name for name, value in _plain(model).items() if before.get(name, value) != value]:
            return _told(small, f"it keeps `{changed[0]}` from call to call, and counts on")
    return None


def own(small: Study) -> Any:
    """The small model, never run, with its own attention: the eager one, if it asks the interface."""
    model = copy.deepcopy(small.fresh)
    if small.interface:
        eager(model)
    return model


def unwritten(small: Study, *, interface: bool) -> Any:
    """The small model, of whose modules none attends as written; without ``interface`` they attend as by default."""
    known = dict(held(small.fresh))
    model = build(type(small.model), small.model.config, device="cpu", interface=interface)
    for name, one in held(in_dtype(model, torch.float64)):
        if name in known:
            one.copy_(known[name])
    return model


def _asked(small: Study, plain: dict[str, Any]) -> tuple[Callable[[], Any], Any, torch.Tensor]:
    """What makes a model that never ran, one that ran once, and its logits: with its own attention, if it has any."""
    model = own(small)
    try:
        return lambda: own(small), model, _logits(model(**plain))
    except AUTHOR_ERRORS:
        model = copy.deepcopy(small.fresh)  # as it is served
        return lambda: copy.deepcopy(small.fresh), model, _logits(model(**plain))


def _ways(
    small: Study, fresh: Callable[[], Any], plain: dict[str, Any]
) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    ones = torch.ones(1, TOKENS, dtype=torch.int64)
    taken = inspect.signature(small.model.forward).parameters
    anything = any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken.values())
    if anything or "attention_mask" in taken:
        yield "when it is given a mask of ones", lambda: _logits(fresh()(**plain, attention_mask=ones))
    if anything or "use_cache" in taken:
        cached = plain | {"use_cache": True}
        yield "when it is to keep a cache", lambda: _logits(fresh()(**cached))
    for how, within in (("in inference mode", torch.inference_mode), ("when it is compiled", _compiling)):
        yield how, partial(_under, within, lambda: _logits(fresh()(**plain)))
    if _logits(fresh()(**plain)).shape[1] == TOKENS:  # else it answers its last token alone, whichever that is
        yield "on its first token alone", lambda: _logits(fresh()(**_cut(plain, 0, 1)))


def _under(within: Callable[[], AbstractContextManager[Any]], ask: Callable[[], torch.Tensor]) -> torch.Tensor:
    with within():
        return ask()


@contextmanager
def _compiling() -> Iterator[None]:
    """Let torch say that it is compiling: a branch on it would be taken in a compiled graph alone."""
    flag = patch.object(torch.compiler, "_is_compiling_flag", new=True)
    with flag, patch.object(torch.compiler, "is_dynamo_compiling", lambda: True):
        yield


def _cut(given: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    return {name: value[:, start:end] if isinstance(value, torch.Tensor) else value for name, value in given.items()}


def from_cache(small: Study) -> Refusal | None:
    """What to tell if the small model, decoding with its own cache, answers otherwise than in one run.

    Then there are two answers that are the author's. What is served is that of one run, as in training.
    """
    model = own(small)
    plain = prompt(model, TOKENS) | {"use_cache": True}
    with torch.no_grad(), arithmetic(torch.float64):
        try:
            wanted, found = _logits(model(**prompt(model, TOKENS))), _continued(own(small), plain)
        except AUTHOR_ERRORS:
            return None
    if found.shape != wanted.shape or (apart := distance(wanted, found)) <= BOUND:
        return None
    told = f"from its own cache it answers otherwise than in one run, by {apart:.1e}; what is served is the latter"
    help_ = "keep in the cache what later tokens need, in a place of its own for each call"
    return Refusal("cache", Reason.VALUE_VARIES, told, type(small.model).__name__, help=help_)


def _continued(model: nn.Module, given: dict[str, Any]) -> torch.Tensor:
    """Logits of all but the last tokens at once, and of these one by one."""
    first = TOKENS - STEPS
    out = model(**_cut(given, 0, first))
    found = [_logits(out)]
    if not out.past_key_values.get_seq_length():
        raise ValueError("it keeps no cache")
    for at in range(first, TOKENS):
        out = model(**_cut(given, at, at + 1), past_key_values=out.past_key_values)
        found.append(_logits(out))
    return torch.cat(found, 1)


def _logits(out: Any) -> torch.Tensor:
    found = scores(out)
    assert isinstance(found, torch.Tensor)
    return found


def _plain(model: nn.Module) -> dict[str, object]:
    """Numbers, words and flags that modules keep."""
    return {
        f"{path}.{name}" if path else name: value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, int | float | str)
    }


def _told(small: Study, found: str) -> Refusal:
    help_ = "let the answer depend on the tokens and their positions alone"
    return Refusal("model", Reason.VALUE_VARIES, found, type(small.model).__name__, help=help_)
