"""What an author's eager attention reads off its module, or does far on, and the attention interface is not told."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import nn

from hfspeed.graph.nodes import is_attention
from hfspeed.graph.reads import reading
from hfspeed.pattern.replacement import place_of
from hfspeed.plan.paths import within
from hfspeed.planner.asked import own, unwritten
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt, taken
from hfspeed.planner.span_rows import KINDS, kinds_of_rows
from hfspeed.planner.study import Study
from hfspeed.planner.witness import finite_distance
from hfspeed.reference.asking import scores
from hfspeed.refusal import Place, Reason, Refusal

SHORT, LONG = 40, 600
"""Tokens that are compared."""
LONGEST: Final = 1 << 11
"""The most that are, where eager attention asks how many there are."""
BOUND: Final = 1e-5
"""Relative difference of logits that refuses. In float64, but for weights that eager attention rounds to float32."""
NUMBER: Final = "layer_idx"
"""What transformers calls the number of a layer: all that a large model may have are tried."""
LAYERS: Final = 64
USUAL: Final = "sdpa"
"""The attention that transformers takes where nobody asks for one."""
HELP: Final = "hand everything attention needs (scaling, sliding_window, …) to the interface by keyword"


def only_eager_knows(small: Study) -> Refusal | None:
    """A refusal if eager attention is not what the interface is told: by buffers, numbers of modules, or far on."""
    attending = [
        path
        for path, call in small.recording.calls.items()
        if any(map(is_attention, call.graph.nodes)) and not within(path, small.written)
    ]
    if not attending:
        return None
    at = place_of(small.recording.calls[attending[0]])
    with torch.no_grad(), arithmetic(torch.float64):
        for how, apart in _ways(small, attending):
            if not apart <= BOUND:
                return _told(attending[0], f"with its own eager attention, {how}, it answers otherwise", apart, at)
        apart = _replaced(small)
        if not apart <= BOUND:
            found = f"`{USUAL}`, which is taken by default, is not transformers' own here, and it answers otherwise"
            return _told(attending[0], found, apart, at)
    return None


def _ways(small: Study, attending: list[str]) -> Iterator[tuple[str, float]]:
    """What is compared, and how far apart the two are."""
    many = taken(lambda tokens: _answer(copy.deepcopy(small.fresh), tokens), SHORT, LONG)
    yield f"on {many} tokens", _apart(small, many)
    unlike = (kind for kind in kinds_of_rows(own(small)) if not {SHORT, many} & {*kind} and kind[0] <= LONGEST)
    for kind in itertools.islice(unlike, KINDS):
        yield f"on {kind[0]} tokens", _apart(small, kind[0])
    yield "with other values in its buffers", _apart(small, SHORT, _stir)
    yield "with other whole numbers in its buffers", _apart(small, SHORT, _count)
    for name in _asked(small, attending):
        for value in range(LAYERS) if name == NUMBER else (3, 17):
            change = _setting(attending, name, value)
            yield f"where `{name}` of its modules is {value}", _apart(small, SHORT, change, strict=name == NUMBER)


def _apart(small: Study, tokens: int, change: Any = lambda _: None, *, strict: bool = False) -> float:
    """How far logits are apart with the author's attention and with ours, both models changed alike.

    0 where one of them does not run, or infinite with ``strict`` if only ours does.
    """
    theirs, ours = own(small), copy.deepcopy(small.fresh)
    change(theirs)
    change(ours)
    try:
        known = _answer(ours, tokens)
    except AUTHOR_ERRORS:
        return 0.0
    try:
        return finite_distance(_answer(theirs, tokens), known)
    except IndexError:
        return math.inf if strict else 0.0
    except AUTHOR_ERRORS:
        return 0.0


def _answer(model: Any, tokens: int) -> torch.Tensor:
    found: torch.Tensor = scores(model(**prompt(model, tokens)))
    return found.double()


def _stir(model: nn.Module) -> None:
    """Give every buffer of floating point numbers other ones, as a checkpoint may."""
    source = torch.Generator().manual_seed(0)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            noise = torch.rand(2, *buffer.shape, generator=source, dtype=torch.float64).to(buffer.dtype)
            buffer.copy_(torch.where(buffer.isfinite(), buffer * (0.75 + 0.5 * noise[0]) + 0.2 * noise[1], buffer))


def _count(model: nn.Module) -> None:
    """Give every stored buffer of whole numbers small ones, as a checkpoint may: a window, say."""
    stored = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if name in stored and not buffer.is_floating_point() and buffer.dtype is not torch.bool:
            buffer.copy_(buffer.remainder(5) + 3)


def _setting(attending: list[str], name: str, value: int) -> Any:
    def change(model: nn.Module) -> None:
        for path in attending:
            module = model.get_submodule(path)
            if name in vars(module):
                setattr(module, name, type(vars(module)[name])(value))

    return change


def _asked(small: Study, attending: list[str]) -> list[str]:
    """Numbers of modules that attend which nobody reads but their eager attention, and the number of the layer."""
    found: list[set[str]] = []
    for model in (own(small), copy.deepcopy(small.fresh)):
        modules = {id(model.get_submodule(path)): model.get_submodule(path) for path in attending}
        try:
            with reading(modules.values()) as reads:
                _answer(model, SHORT)
        except AUTHOR_ERRORS:
            return []
        numbers = {name for at, name in reads if at in modules and type(vars(modules[at]).get(name)) in (int, float)}
        found.append(numbers)
    theirs, ours = found
    return sorted((theirs - ours - {"num_key_value_groups"}) | (theirs & {NUMBER}))


def _replaced(small: Study) -> float:
    """How far apart the model is with what it takes by default, if that is another attention, or mask, than usual."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    registered = (ALL_ATTENTION_FUNCTIONS._global_mapping, ALL_MASK_ATTENTION_FUNCTIONS._global_mapping)
    if all(getattr(one.get(USUAL), "__module__", "").startswith("transformers.") for one in registered):
        return 0.0
    model = unwritten(small, interface=False)
    try:
        most = taken(lambda tokens: _answer(copy.deepcopy(model), tokens), SHORT, LONG)
        pairs = [[_answer(copy.deepcopy(one), many) for one in (model, small.fresh)] for many in (SHORT, most)]
        return max(finite_distance(*pair) for pair in pairs)
    except AUTHOR_ERRORS:
        return math.inf  # what cannot be compared is not what is proven


def _told(path: str, found: str, apart: float, place: Place | None) -> Refusal:
    told = f"{found}, by {apart:.1e}"
    return Refusal("attention", Reason.KEYWORD_NOT_CONSUMED, told, path, place, help=HELP)
