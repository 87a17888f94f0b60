"""How a module is called that attends as written: which arguments follow the tokens, and which are masks."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from hfspeed.graph.tensors import tensors
from hfspeed.pattern.span import Span
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.recurrences.history import MOST, NONE, most, results
from hfspeed.recurrences.written import DISTANCE, Mask, Written

SHORT, MIDDLE, LONG = 13, 70_001, 100_003
"""Tokens of calls on meta: numbers of tokens that a module chooses lie between the first two."""


_Made = list[tuple[int, ...]]
"""Shapes, in the order in which they were made."""


@dataclass(frozen=True)
class Call:
    """One call of a module."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


@dataclass
class Seen:
    """What one run showed.

    Attributes:
        tokens: of the prompt.
        made: each mask that was made, with what it shows.
        calls: of each module, in order.
    """

    tokens: int
    made: list[tuple[torch.Tensor, Span]] = field(default_factory=list)
    calls: dict[str, list[Call]] = field(default_factory=dict)


def called(runs: Sequence[Seen], module: nn.Module, path: str, widths: dict[int, int]) -> Written | None:
    """How a module is called, by runs of several lengths; ``None`` if it cannot be run on whole sequences so.

    Args:
        runs: prompts of different lengths.
        module: which is called.
        path: of it.
        widths: of tensors, by address, that have a row for each token, of tokens that it chooses: how many these are at
            most. What this module gives is added.
    """
    if any(len(run.calls.get(path, ())) != 1 for run in runs):
        return None
    calls = [run.calls[path][0] for run in runs]
    every = [_named(module, call) for call in calls]
    if any([name for name, _ in one] != [name for name, _ in every[0]] for one in every):
        return None
    masks: list[Mask] = []
    inputs: list[str] = []
    for number, (name, _) in enumerate(every[0]):
        values = [one[number][1] for one in every]
        if (mask := _mask(runs, name, values)) is not None:
            masks.append(mask)
            inputs += [NONE] if mask.kind == DISTANCE else []
            continue
        told = [_told(runs, same, widths) for same in zip(*map(tensors, values), strict=False)]
        if None in told:
            return None
        inputs += [one for one in told if one is not None]
    known = list(tensors((calls[-1].args, calls[-1].kwargs)))
    held = {id(one): widths[at] for one in known if (at := one.untyped_storage().data_ptr()) in widths}
    far = _far(module, runs[-1].tokens, calls[-1], held)
    if far is not None:
        _widen(runs[-1], calls[-1], far[0], widths)
    outs = zip(*(results(call.output) for call in calls), strict=False)
    how = Written(tuple(masks), tuple(inputs), tuple(_given(runs, same, widths) for same in outs))
    how = replace(how, counts=far[1] if far is not None else ())
    return how if _exact(how, runs, every) else None


def _named(module: nn.Module, call: Call) -> list[tuple[str, Any]]:
    names = list(inspect.signature(type(module).forward).parameters)[1:]
    names += [f"*{number}" for number in range(len(names), len(call.args))]
    return [*zip(names, call.args, strict=False), *call.kwargs.items()]


def _mask(runs: Sequence[Seen], name: str, values: Sequence[Any]) -> Mask | None:
    """The mask that transformers made and that is handed over as it is, or the distances of tokens."""
    if not all(isinstance(value, torch.Tensor) for value in values):
        return None
    if all(_is_distance(run, value) for run, value in zip(runs, values, strict=True)):
        return Mask(name, DISTANCE)
    spans = {_span(run, value) for run, value in zip(runs, values, strict=True)}
    span = spans.pop()
    if spans or span is None or span.odd:
        return None
    return Mask(name, span.kind, span.size)


def _is_distance(run: Seen, value: torch.Tensor) -> bool:
    if list(value.shape) != [run.tokens] * 2 or value.is_floating_point():
        return False
    at = torch.arange(run.tokens)
    return torch.equal(value, (at[:, None] - at[None]).to(value.dtype))


def _span(run: Seen, value: torch.Tensor) -> Span | None:
    """What a mask shows that transformers made; ``None`` if it is none of those, or might be one of several."""
    held = value.untyped_storage().data_ptr()
    alike = [(made, span) for made, span in run.made if made.shape == value.shape and torch.equal(made, value)]
    very = {span for made, span in alike if made.untyped_storage().data_ptr() == held}
    spans = very or {span for _, span in alike}
    return spans.pop() if len(spans) == 1 else None


def _exact(how: Written, runs: Sequence[Seen], every: Sequence[Sequence[tuple[str, Any]]]) -> bool:
    """Whether what would be made in place of masks is what was given, to the last bit."""
    if not any("T" in told for told in how.inputs if "_" not in told):
        return False
    for run, named in zip(runs, every, strict=True):
        given = dict(named)
        masks = {mask.name for mask in how.masks if mask.kind != DISTANCE}
        number, dim = how.at
        like = list(tensors([value for name, value in named if name not in masks]))[number]
        for mask in how.masks:
            made, wanted = mask.made(run.tokens, like.shape[0] if dim else 1, like), given[mask.name]
            if made.shape != wanted.shape or (mask.kind != DISTANCE and made.dtype is not wanted.dtype):
                return False
            if not torch.equal(made.to(wanted.dtype), wanted):
                return False
    return True


def _told(runs: Sequence[Seen], same: Sequence[torch.Tensor], widths: dict[int, int]) -> str | None:
    """One tensor as `History` says it; ``None`` if it follows the tokens in another way."""
    if len({one.ndim for one in same}) != 1:
        return None
    width = widths.get(same[-1].untyped_storage().data_ptr())
    sizes = []
    for number in range(same[0].ndim):
        found = [one.shape[number] for one in same]
        if found == [run.tokens for run in runs] and "T" not in sizes:
            sizes.append("T")
        elif width is not None and found == [min(run.tokens, width) for run in runs]:
            sizes.append(f"~{width}")
        elif len(set(found)) == 1:
            sizes.append(str(found[0]))
        else:
            return None
    if "T" not in sizes:
        return NONE
    kind = str(same[0].dtype).removeprefix("torch.")
    return "x".join(sizes) + ("" if same[0].is_floating_point() else f"_{kind}")


def shaped(told: str, value: Any) -> str:
    """What is told of a tensor of a narrow model, told of the same one of another: with its sizes and dtype."""
    if told == NONE or not isinstance(value, torch.Tensor):
        return NONE
    sizes = told.partition("_")[0].split("x")
    pairs = zip(sizes, value.shape, strict=True)
    own = "x".join(known if known[0] in {"T", MOST} else str(size) for known, size in pairs)
    return own if value.is_floating_point() else f"{own}_{str(value.dtype).removeprefix('torch.')}"


def _given(runs: Sequence[Seen], same: Sequence[Any], widths: dict[int, int]) -> str:
    """One result: what does not follow the tokens, as weights of attention, is not handed on."""
    if not all(isinstance(one, torch.Tensor) for one in same):
        return NONE
    return _told(runs, same, widths) or NONE


def _far(
    module: nn.Module, few: int, call: Call, held: Mapping[int, int]
) -> tuple[list[Any], tuple[int, ...]] | None:
    """What a module gives for very many tokens, on meta, and the numbers of tokens that it chooses there.

    A prompt of a ``few`` may be shorter than what is chosen of it: then all of it is, and nobody sees what would be
    chosen of more. ``held`` says of arguments, by ``id``, how many tokens were chosen for them.
    """

    def longer(tokens: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        sizes = [tokens if size == few else size for size in value.shape]
        if id(value) in held:
            sizes[-1] = min(tokens, held[id(value)])
        return torch.empty(sizes, dtype=value.dtype, device="meta")

    made: list[_Made] = []
    asked: list[set[int]] = []
    outs: list[Any] = []
    for tokens in (SHORT, MIDDLE, LONG):
        with torch.no_grad(), _Shapes() as shapes:
            given = tree_map(partial(longer, tokens), (call.args, call.kwargs))
            try:
                outs = results(copy.deepcopy(module).to("meta")(*given[0], **given[1]))
            except AUTHOR_ERRORS:
                return None
        made.append(shapes.made)
        asked.append(shapes.asked)
    chosen = {count for count in asked[1] & asked[2] if SHORT < count < MIDDLE}
    return outs, tuple(sorted(_counts(*made) | chosen))


def _counts(short: _Made, middle: _Made, long: _Made) -> set[int]:
    """Sizes that are those of long prompts, whatever their length, and the number of tokens in a short one.

    Where a short one goes another way, sizes that it does not have at all.
    """
    few, some, many = ({size for shape in made for size in shape} for made in (short, middle, long))
    found = (some & many) - few
    if [len(shape) for shape in short] == [len(shape) for shape in long] == [len(shape) for shape in middle]:
        rows = zip(*(chain.from_iterable(made) for made in (short, middle, long)), strict=True)
        found = {b for a, b, c in rows if a == SHORT and b == c}
    return {size for size in found if SHORT < size < MIDDLE}


class _Shapes(TorchFunctionMode):
    """Shapes of all that is computed, and numbers that ``topk`` is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.made: _Made = []
        self.asked: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call ``func``, and note the shapes of its results."""
        out = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            self.made += [tuple(one.shape) for one in tensors(out)]
        if func in {torch.topk, torch.Tensor.topk}:
            self.asked |= {int(one) for one in (*args[1:2], (kwargs or {}).get("k", 0))}
        return out


def chooses_so_many(module: nn.Module, tokens: int, call: Call, how: Written) -> bool:
    """Whether a module chooses as many tokens as is said, called with very many like in ``call``."""
    if not any(map(most, how.gives)):
        return True
    given = zip(tensors((call.args, call.kwargs)), how.inputs, strict=True)
    far = _far(module, tokens, call, {id(one): most(told) for one, told in given if most(told)})
    return far is not None and all(
        not most(told) or one.shape[-1] == most(told) for told, one in zip(how.gives, far[0], strict=True)
    )


def _widen(run: Seen, call: Call, outs: Sequence[Any], widths: dict[int, int]) -> None:
    """Note how many tokens a module chooses for each, where it gives their numbers."""
    for one, far in zip(results(call.output), outs, strict=True):
        if _chooses(one, run.tokens):
            size = int(far.shape[-1])
            if size < LONG and one.shape[-1] == min(size, run.tokens):
                widths.setdefault(one.untyped_storage().data_ptr(), size)


def _chooses(value: Any, tokens: int) -> bool:
    """Whether it is rows of numbers, one for each token, of no more tokens than there are."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.ndim < 2:
        return False
    return tokens in value.shape[:-1] and value.shape[-1] <= tokens
