"""Every kind of rewritten or split module is run alone first: what fails is left as written, or left whole."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from types import CodeType

from torch import nn

from hfspeed.emit import emitted
from hfspeed.errors import PlanError
from hfspeed.graph.linear import shape_of
from hfspeed.graph.nodes import is_linear
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful
from hfspeed.graph.unread import read_of
from hfspeed.pattern.own import choices
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Attention, Plan
from hfspeed.planner.draft import draft
from hfspeed.planner.full_size import Shapes
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.mixers import COST, Fits, changing, guesses, mixers
from hfspeed.planner.prove import prove_module
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import Key, Verdict, Verdicts, key
from hfspeed.planner.work import Draft
from hfspeed.reference.build import build
from hfspeed.refusal import Reason, Refusal

_TRIES, _SHAPES = 12, 2048
"""Modules that are compared, and those that are only asked whether shapes agree."""
APART = ("rotary", "bare")
"""Fusions that rest on what a module is given, which only running it shows; it is tried without them."""


def judge(study: Study, barred: frozenset[tuple[Key, str]] = frozenset(), ranks: int = 2) -> Verdicts:
    """Verdicts on every kind of module of a small real model.

    Args:
        study: recorded with values, so that modules can be called again.
        barred: kinds of modules, and fusions that the large model's values rule out.
        ranks: on how many shares are tried.
    """
    verdicts = Verdicts(ranks=ranks, barred=barred)
    plan, work = draft(study, verdicts)
    for path in _order(work):
        call = work.views.get(path, study.recording.calls[path])
        call = mixers(study)[path].call if path in work.mixed else call
        ends = work.wrapper.ending is not None and path == work.wrapper.base
        other = ends or (work.stages and path == work.stages.decoder) or path in study.positions
        if key(call) in verdicts.known or other:
            continue  # what is handed a value of ours, or returns another, is judged with the whole
        verdict = _unfused(study, verdicts, plan, call) if path in work.sites else Verdict()
        verdicts.known[key(call)] = verdict
        if work.tensor and (path in work.blocks or path in work.mixed):
            verdicts.known[key(call)] = _whole(study, verdicts, work, call)
    return verdicts


def _order(work: Draft) -> list[str]:
    """Paths to judge as they ran; those that look into children come last, when these have been judged."""
    calls = work.study.recording.calls
    order = {path: number for number, path in enumerate(calls)}
    return sorted(
        {*work.blocks, *work.sites, *work.mixed}, key=lambda p: (work.views.get(p, calls[p]) is not calls[p], order[p])
    )


def _unfused(study: Study, verdicts: Verdicts, plan: Plan, call: Call) -> Verdict:
    """Does the rewritten module compute what its author wrote, on one rank? If not, does it without one fusion?"""
    first: Exception | None = None
    for verdict in (Verdict(), *(Verdict(without=(name,)) for name in APART)):
        if verdict.without:
            verdicts.known[key(call)] = verdict
            plan, _ = draft(study, verdicts)
        try:
            _run(study, plan, call, 1)
        except (Mismatch, PlanError) as error:
            first = first or error
        else:
            told = _refusal(verdict.without[0], Reason.NUMBERS_DIFFER, str(first), call) if first else None
            return replace(verdict, refusal=told)
    found = f"the fused module differs from the author's: {first}"
    return Verdict(fused=False, refusal=_refusal("fusion", Reason.NUMBERS_DIFFER, found, call))


def _whole(study: Study, verdicts: Verdicts, work: Draft, call: Call) -> Verdict:
    """Do shares pass through the module on several ranks, perhaps with some of its integers divided?"""
    start = verdicts.known[key(call)]
    first: Exception | None = None
    tries = _numbers(study, verdicts, work, call) if call.path in work.mixed else _tries(work, call, start)
    for verdict in tries:
        if (error := _apart(study, verdicts, call, verdict)) is None:
            return _needed(study, verdicts, call, verdict) if verdict.counts else verdict
        first = first or error
    found = f"its shares do not add up to the whole on {verdicts.ranks} ranks: {first}"
    found += f"; {COST}" if call.path in work.mixed else ""
    refusal = _refusal("tensor", Reason.MIXES_SPLIT, found, call)
    return replace(start, split=False, local=(), refusal=start.refusal or refusal)


def _tries(work: Draft, call: Call, start: Verdict) -> list[Verdict]:
    """What may let shares through; what costs more change is tried later."""
    every = choices(work.blocks[call.path].own, call.path)
    return [one for own in every for one in _tries_with(work, call, replace(start, own=own))]


def _tries_with(work: Draft, call: Call, start: Verdict) -> list[Verdict]:
    # with all integers divided first, as most often they all count heads
    locals_ = list(_guesses(work, call))
    tries = [replace(start, local=names) for names in locals_]
    tries += [replace(start, local=names, widths=True) for names in locals_]
    tries += [replace(start, regroup=True, local=names) for names in locals_]
    return tries + [replace(start, as_written=True, local=names) for names in locals_]


def _numbers(study: Study, verdicts: Verdicts, work: Draft, call: Call) -> Iterator[Verdict]:
    """Which integers of a module with states count what, as far as shapes agree; some verdict in any case."""
    start, made = verdicts.known[key(call)], work.mixed[call.path]
    plan, _ = draft(study, verdicts)
    ranks, group = verdicts.ranks, Shapes(verdicts.ranks)
    model = build(plan, study.model, emitted(plan), ranks=ranks, group=group, under=call.path, strict=False)
    fits = Fits(study.recording.calls[call.path], made, model.get_submodule(call.path), ranks)
    named = {name: value for child in _looked_into(call) for name, value in _integers(call.module, child)}
    found = (one for one in islice(guesses(named, made), _SHAPES) if fits(one["counts"]))
    some = list(islice(found, _TRIES)) or [next(guesses(named, made))]
    yield from (replace(start, **one) for one in some)


def _apart(study: Study, verdicts: Verdicts, call: Call, verdict: Verdict) -> Exception | None:
    """How the module on several ranks differs from the author's under a verdict."""
    verdicts.known[key(call)] = verdict
    plan, _ = draft(study, verdicts)
    try:
        _run(study, plan, call, verdicts.ranks)
    except (Mismatch, PlanError) as error:
        return error
    return None


def _needed(study: Study, verdicts: Verdicts, call: Call, verdict: Verdict) -> Verdict:
    """The verdict without integers that happen to equal a number of shares, and can stay what they are."""
    for name in changing(dict(verdict.counts), mixers(study)[call.path]):
        counts = tuple(entry for entry in verdict.counts if entry[0] != name)
        fewer = replace(verdict, local=tuple(one for one in verdict.local if one != name), counts=counts)
        verdict = fewer if _apart(study, verdicts, call, fewer) is None else verdict
    return verdict


def _run(study: Study, plan: Plan, call: Call, ranks: int) -> None:
    classes = emitted(plan)
    given = {"classes": classes, "ranks": (ranks,), "read": partial(read_of, call.graph)}
    prove_module(plan, study.model, call.path, call.args, call.kwargs, **given)  # type: ignore[arg-type]


def _guesses(work: Draft, call: Call) -> Iterator[tuple[str, ...]]:
    """Sets of integer attributes that may count split things: none, then all, then fewer."""
    yield ()
    sizes = set(work.blocks[call.path].columns.values())
    for path in work.blocks[call.path].columns:
        module = work.study.model.get_submodule(path)
        sizes |= {shape.outputs} if (shape := shape_of(module)) else set()
    for op in work.ops:
        if isinstance(op, Attention) and op.path in work.blocks[call.path].attends:
            sizes |= {op.heads, op.kv_heads}
    names = [name for child in _looked_into(call) for name in _counts(call.module, child, sizes)]
    tries = 0
    for length in range(len(names), 0, -1):
        for chosen in combinations(names, length):
            tries += 1
            if tries > _TRIES:
                return
            yield chosen


def _looked_into(call: Call) -> list[str]:
    """The module itself, as the empty name, and the children whose graphs are part of its own."""
    start = len(call.path) + 1 if call.path else 0
    owners = [node.meta.get("owner", call.path) for node in call.graph.nodes]
    if any(map(is_stateful, call.graph.nodes)):  # grouped norms and the like count their groups
        owners += [str(node.target) for node in call.graph.nodes if node.op == "call_module" and not is_linear(node)]
    return list(dict.fromkeys(["", *(owner[start:] for owner in owners)]))


def _counts(module: nn.Module, child: str, sizes: set[int]) -> Iterator[str]:
    """Integers of ``child`` that its code reads and that are one of ``sizes``."""
    yield from (name for name, value in _integers(module, child) if value in sizes)


def _integers(module: nn.Module, child: str) -> Iterator[tuple[str, int]]:
    """Integers of ``child`` that its code reads."""
    owner = module.get_submodule(child)
    for name in _read(type(owner)):
        value = vars(owner).get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield f"{child}.{name}" if child else name, value


def _read(cls: type[nn.Module]) -> list[str]:
    """Names that the author's methods, the constructor aside, may read."""
    names: dict[str, None] = {}
    for owner in cls.__mro__:
        if owner is nn.Module:
            break
        for name, method in vars(owner).items():
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            if code is not None and name != "__init__":
                names |= dict.fromkeys(_names(code))
    return list(names)


def _names(code: CodeType) -> Iterator[str]:
    """Names in ``code`` and in what is defined in it: comprehensions, generators, functions."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _refusal(wanted: str, reason: Reason, found: str, call: Call) -> Refusal:
    return Refusal(wanted, reason, found, call.path, place_of(call), near=3)
