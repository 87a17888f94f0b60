"""One model looked at: built, run once under the recorder, with a twin that has real buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.graph.exact import Exact
from hfspeed.graph.hollow import template
from hfspeed.graph.leftover import left_behind
from hfspeed.graph.nodes import is_attention
from hfspeed.graph.record import Call, Recording, record, recorder
from hfspeed.graph.unread import forget_unread
from hfspeed.pattern.afar import afar
from hfspeed.pattern.attend_edit import AttentionEdit
from hfspeed.pattern.by_hand import LONGEST, all_by_hand
from hfspeed.pattern.counted import counted
from hfspeed.pattern.edit import Change
from hfspeed.pattern.masks import shed, unread_masks
from hfspeed.pattern.span import Span
from hfspeed.planner.build import build, mark, randomise
from hfspeed.planner.copied import copied
from hfspeed.planner.ends import table_of
from hfspeed.planner.familiar import cannot_run, familiar
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.precision import in_dtype
from hfspeed.planner.prompts import prompt, taken
from hfspeed.planner.reads import blind, steady
from hfspeed.planner.sizes import context, longest
from hfspeed.planner.wrapper import base_of, takes_positions
from hfspeed.recurrences.written import Written, write_all
from hfspeed.reference.asking import ids_name
from hfspeed.refusal import Refusal, Refused

TOKENS = 9
"""Prompt length of the recorded run: no size of a model, so that shapes cannot coincide."""
TRIED = 100
"""Prompt length at which a small model shows every window; its tables of positions hold that many."""


@dataclass
class Study:
    """What the planner knows of one build of a model.

    Attributes:
        model: the author's ``ForCausalLM``; on meta when ``real`` is false.
        twin: the same with real buffers, so that single modules can be run.
        recording: one run of ``model``.
        real: parameters have values.
        interface: attention calls the attention interface; else it is computed by hand, as by default.
        by_hand: how modules must change that compute attention by hand.
        refusals: modules that do so in a way that cannot be served.
        masks: changes of modules that make masks for them, which nothing reads any more.
        shut: classes of modules that decide by values, and so are not looked into.
        positions: changes of modules that count positions along their row.
        first_position: the number that the author gives the first token.
        mixers: modules with states and how they may be split, once somebody has asked.
        written: modules that attend as their author wrote it, whatever the rest does.
        masked: modules that do not say so attend causally all the same, because the masks are.
        room: a sequence that is longer asks a table for rows that it does not have; 0 for none.
        limit: a sequence that is longer is computed otherwise by its author, and with it all beside it; 0 for none.
        rowwise: as ``positions``, with first rows of tables looked up too; found when they are needed.
        fresh: ``model``, if it is real, as it was before it ran: what is served has never run either.
    """

    model: Any
    twin: Any
    recording: Recording
    real: bool
    interface: bool = True
    by_hand: dict[str, AttentionEdit] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    masks: dict[str, list[Change]] = field(default_factory=dict)
    shut: frozenset[type[nn.Module]] = frozenset()
    positions: dict[str, list[Change]] = field(default_factory=dict)
    first_position: int = 0
    masked: bool = False
    limit: int = 0
    room: int = 0
    fresh: Any = None
    mixers: dict[str, Any] | None = None
    written: Mapping[str, Written] = field(default_factory=dict)
    rowwise: dict[str, list[Change]] | None = None

    def take_masks(self) -> None:
        """Attention that does not say so is causal, because masks make it so."""
        self.masked = True
        for path, call in self.recording.calls.items():
            for node in (n for one in (call, *self.recording.again.get(path, ())) for n in one.graph.nodes):
                node.meta["masked"] = True

    @property
    def windows(self) -> frozenset[int]:
        """All windows and chunks of attention."""
        found = set()
        for call in self.recording.calls.values():
            for node in call.graph.nodes:
                for name in ("sliding_window", "chunk") if is_attention(node) else ():
                    if isinstance(size := node.kwargs.get(name), int):
                        found.add(size)
        return frozenset(found)


def study(
    model_class: type[Any],
    config: Any,
    *,
    real: bool,
    seed: int = 0,
    interface: bool | None = None,
    shut: frozenset[type[nn.Module]] = frozenset(),
    built: Any = None,
    spans: Mapping[str, Span] | None = None,
    written: Mapping[str, Written] | None = None,
) -> Study:
    """Build and record a model.

    Args:
        model_class: the author's ``ForCausalLM`` class.
        config: its configuration.
        real: build it on the CPU in float64 with random weights; else on meta at any size.
        seed: of the random weights.
        interface: whether its attention calls the attention interface; by default that is found out.
        shut: classes that are not looked into, because the model was planned so on meta, where more are found.
        built: the model on meta as `build` makes it, where somebody has.
        spans: what the masks of its modules say that no keyword does.
        written: modules that attend as their author wrote it, in a model that calls the interface otherwise.

    Raises:
        RefusedError: the forward does not run alone.
    """
    if interface is not None:
        return _study(model_class, config, real, seed, interface, shut, spans=spans, written=written)
    failed: RefusedError | None = None
    first: Study | None = None
    try:
        first = _study(model_class, config, real, seed, True, built=built)
    except RefusedError as error:
        failed = error
    asks = [n for c in first.recording.calls.values() for n in c.graph.nodes if is_attention(n)] if first else []
    masks = any(node.args[4] is not None for node in asks)  # the author's own: what they hide shows by hand
    if first is not None and asks and not masks:
        return first
    try:
        second = _study(model_class, config, real, seed, False)
    except RefusedError as error:
        if failed is None:
            failed = error
    else:
        if (second.by_hand and not second.refusals) or first is None or (second.refusals and not asks):
            return second
    if first is None:
        assert failed is not None
        raise failed
    return first


def _study(
    model_class: type[Any],
    config: Any,
    real: bool,
    seed: int,
    interface: bool,
    shut: frozenset[type[nn.Module]] = frozenset(),
    built: Any = None,
    spans: Mapping[str, Span] | None = None,
    written: Mapping[str, Written] | None = None,
) -> Study:
    model, twin = _built(model_class, config, real, seed, interface, built)
    mark(spans or {}, model, twin)
    write_all(written or {}, *dict.fromkeys((model, twin)))
    found = Study(model, twin, Recording(model), real, interface, shut=shut, written=written or {})
    found.fresh = copied(model) if real else None
    try:
        found.recording = _run(found, 0) if real else _opened(found)
        familiar(found.recording)
        if found.recording.reads and not real:
            late = longest(config) - TOKENS
            found.limit = steady(model, found.recording, partial(recorded_again, found), late)
            blind(model, found.recording, lambda guess: recorded_again(found, guess=guess))
        if not interface:
            _attend(found, min(TRIED, context(config)) if real else context(config))
    except AUTHOR_ERRORS as error:
        raise RefusedError(model_class.__name__, (cannot_run(model_class, error),)) from error
    if found.by_hand:
        found.masks = {
            p: made for p, c in found.recording.calls.items() if (made := unread_masks(found.recording, c, TOKENS))
        }
        shed(found.recording)
    _count(found)
    return found


def _attend(found: Study, most: int) -> None:
    """Look at attention by hand, in the longest prompts that anybody takes; if masks change later, none longer is."""
    many = min(most, LONGEST)
    if most > many and afar(found.recording, TOKENS, many, most) is not None:
        found.limit = min(found.limit or many, many)
    try:
        found.by_hand, found.refusals = all_by_hand(found.recording, TOKENS, partial(_again, found, many), many)
    except AUTHOR_ERRORS:
        many = taken(lambda tokens: recorded_again(found, tokens=tokens), TOKENS, many)
        found.by_hand, found.refusals = all_by_hand(found.recording, TOKENS, partial(_again, found, many), many)


def _built(
    model_class: type[Any], config: Any, real: bool, seed: int, interface: bool, built: Any
) -> tuple[Any, Any]:
    """The model, and its twin with real buffers."""
    if real:
        model = build(model_class, config, device="cpu", dtype=torch.float64, interface=interface)
        in_dtype(model, torch.float64)  # what names another dtype is made in that one
        randomise(model, seed)
        return model, model
    model = built if built is not None else build(model_class, config, device="meta", interface=interface)
    return model, build(model_class, config, device="meta", buffers=True, interface=interface)


def _count(found: Study) -> None:
    """A base model that takes no positions may count them itself, and modules below any may."""
    forget_unread(found.recording)
    base = base_of(found.model, found.recording)
    given = takes_positions(found.model, found.recording, base)
    try:
        found.positions = counted(found.recording, base, TOKENS, inside=given)
    except Refused as no:
        found.refusals += (no.refusal,)


def _run(found: Study, start: int, tokens: int = TOKENS, guess: bool | None = None) -> Recording:
    """A recorded prompt with positions from ``start``; with a ``guess``, that answers questions about token ids."""
    model, real = found.model, found.real
    given = prompt(model, tokens)
    rows = int(table_of(model).weight.shape[0])
    positions = torch.arange(tokens)[None]
    known = {ids_name(model): (positions * 7 + 3) % rows, "position_ids": positions + start}
    if guess is not None:
        del known[ids_name(model)]
    values = {} if real else {given[n]: v for n, v in known.items() if n in given}
    values |= {} if real else {**dict(left_behind(model, found.recording)), **dict(_made(model, found.twin))}
    with Exact() if real else nullcontext():
        usual = tokens == TOKENS  # equal layers of a large model are looked at once; of the small one all run
        share = usual and not real
        keep = real and usual
        return record(model, given, keep_values=keep, values=values, shut=found.shut, share=share, guess=guess)


def recorded_again(found: Study, start: int = 0, tokens: int = TOKENS, guess: bool | None = None) -> Recording:
    """The same recorded otherwise, by a model of its own: what a run leaves behind stays there."""
    return _run(replace(found, model=copy.deepcopy(found.model)), start, tokens, guess)


def _made(model: nn.Module, twin: nn.Module) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors on meta that constructors computed, buffers or not, with their values."""
    for one, other in zip(model.modules(), twin.modules(), strict=False):
        for mine, theirs in ((one._buffers, other._buffers), (vars(one), vars(other))):
            for name, value in mine.items():
                known = theirs.get(name)
                if isinstance(value, torch.Tensor) and isinstance(known, torch.Tensor) and not known.is_meta:
                    yield value, known


def _opened(found: Study) -> Recording:
    """A first run on meta. A module that stops it, but runs where there are values, is not looked into."""
    while True:
        try:
            return _run(found, 0)
        except AUTHOR_ERRORS as error:
            stopped: list[Call] = getattr(error, "stopped", [])
            cls = next((c.cls for c in stopped if c.path and template(c.module, c.args, c.kwargs, TOKENS)), None)
            if cls is None or cls in found.shut:
                raise
            found.shut |= {cls}


def _again(found: Study, tokens: int, paths: Collection[str], look: Callable[[Call], None]) -> None:
    """Record a long prompt; the values of its masks are looked at as soon as they are there, and not kept."""

    def done(*_: Any) -> None:
        active = recorder()
        assert active is not None
        with torch._C.DisableTorchFunction():
            look(active.stack[-1].call)
        active.shadows.forget(active.stack[-1].call.graph)

    hooks = [found.model.get_submodule(path).register_forward_hook(done) for path in paths]
    try:
        _run(found, 0, tokens)
    finally:
        for hook in hooks:
            hook.remove()
