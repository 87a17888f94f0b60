"""Modules with states over the ranks: what their dataflow allows becomes ops, if running them on shares agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import torch
from torch import nn

from hfspeed.axes.mixers import Mixes, Mixing, Segments, counted, looked_into, mixing
from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import linears
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.dependence import Unknown
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Keep, Local, Op, Recurrence, Share
from hfspeed.plan.segments import count
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import Verdict, key
from hfspeed.planner.work import Draft
from hfspeed.recurrences import Unsupported
from hfspeed.refusal import Reason, Refusal

COST = "so each rank holds all of its weights and states, and computes all of it"


@dataclass(frozen=True)
class Mixer:
    """A module with states: how it may be split, or why not.

    Attributes:
        call: its call with the graphs of the children that belong to it.
        split: what its dataflow allows; ``None`` where it allows nothing.
        why: the reason then.
    """

    call: Call
    split: Mixing | None
    why: str = ""


def mixers(study: Study) -> dict[str, Mixer]:
    """Every module that makes stateful calls between projections; found once for each kind."""
    if study.mixers is None:
        study.mixers = {}
        known: dict[object, tuple[str, Mixer]] = {}
        for call in study.recording.calls.values():
            view = _candidate(call, study)
            if view is None or any(path.startswith(f"{call.path}.") for path in study.mixers):
                continue
            kind = key(call), tuple((name, tuple(one.shape)) for name, one in call.module.named_parameters())
            if kind not in known:
                known[kind] = call.path, _look(view, study)
            path, made = known[kind]
            split = _moved(made.split, path, call.path) if made.split and path != call.path else made.split
            study.mixers[call.path] = replace(made, call=view, split=split)
    return study.mixers


def _candidate(call: Call, study: Study) -> Call | None:
    """The module's call with a look into its children, if states are its own affair or that of a child without more."""
    if call.closed or call.path in study.recording.again:
        return None
    inner = [study.recording.calls.get(str(n.target)) for n in call.graph.nodes if n.op == "call_module"]
    plain = [one for one in inner if one is not None and not linears(one.graph)]
    if not any(is_stateful(node) for one in (call, *plain) for node in one.graph.nodes):
        return None
    view = looked_into(call, study.recording)
    return view if linears(view.graph) else None


def _look(view: Call, study: Study) -> Mixer:
    try:
        return Mixer(view, mixing(view, study.twin))
    except (Mixes, Unknown, Unsupported) as why:
        return Mixer(view, None, str(why))
    except AUTHOR_ERRORS as error:
        return Mixer(view, None, f"what lies between its projections does not run on random numbers: {error}")


def _moved(made: Mixing, old: str, new: str) -> Mixing:
    """The same for a module of the same kind elsewhere."""

    def at(path: str) -> str:
        return new + path[len(old) :]

    return replace(
        made,
        columns={at(path): one for path, one in made.columns.items()},
        rows=tuple(map(at, made.rows)),
        shares={at(path): one for path, one in made.shares.items()},
        states={at(path): one for path, one in made.states.items()},
        gathered={at(path): one for path, one in made.gathered.items()},
    )


def refused(mixer: Mixer, why: str) -> Refusal:
    """What a mixer that stays whole costs."""
    return Refusal("tensor", Reason.MIXES_SPLIT, f"{why}, {COST}", mixer.call.path, place_of(mixer.call))


def ops(work: Draft, mixer: Mixer, verdict: Verdict) -> Iterator[Op]:
    """The ops of a split mixer besides its projections.

    Raises:
        Mixes: a number in it does not say which of several it counts.
    """
    made = mixer.split
    assert made is not None
    for name in verdict.local:
        if (one := _local(mixer.call, name, made, dict(verdict.counts))) is not None:
            yield one
    model = work.study.model
    owners: dict[str, None] = {}
    for path, (dim, cut) in made.shares.items():
        owner, _, name = path.rpartition(".")
        module = model.get_submodule(owner)
        stored = name in module._parameters or name not in module._non_persistent_buffers_set
        if stored and name in module._buffers:
            raise Mixes(f"`{path}` is a buffer that is saved")
        owners[owner] = None
        yield Share(path, dim, cut, name in module._parameters)
    for owner in owners:  # what is claimed in part is claimed one by one
        yield from (Keep(path) for path in _own(model.get_submodule(owner), owner) if path not in made.shares)


def _own(module: nn.Module, path: str) -> Iterator[str]:
    yield from (f"{path}.{name}" for name, one in module._parameters.items() if one is not None)
    persistent = [name for name in module._buffers if name not in module._non_persistent_buffers_set]
    yield from (f"{path}.{name}" for name in persistent if module._buffers[name] is not None)


def with_states(found: list[Op], made: Mixing) -> list[Op]:
    """``found`` with the states of a mixer split.

    Raises:
        Mixes: a stateful call is made more than once by one expression.
    """
    left = {owner: list(every) for owner, every in made.states.items()}
    done: list[Op] = []
    for op in found:
        if isinstance(op, Recurrence) and op.path in left:
            if op.calls > 1 or not left[op.path]:
                raise Mixes(f"`{op.name}` is called once for each head")
            op = replace(op, segments=left[op.path].pop(0))  # noqa: PLW2901  the same op, and more of it
        done.append(op)
    if any(left.values()):
        raise Mixes("a stateful call is no op of the plan")
    return done


def _local(call: Call, name: str, made: Mixing, counts: Mapping[str, frozenset[str]]) -> Local | None:
    child, _, attribute = name.rpartition(".")
    whole = int(getattr(call.module.get_submodule(child), attribute))
    able = counted(whole, made.counts)
    meant = {cut for told, cut in able.items() if told in counts.get(name, frozenset())}
    if whole == 1 and not meant:
        return None
    if len({tuple(count(cut, ranks) for ranks in _workable(made)) for cut in meant}) != 1:
        raise Mixes(f"`{name}` = {whole} may count several things")
    segments: Segments = min(meant)
    if all(units == 1 for _, units in segments):
        return None
    return Local(".".join(part for part in (call.path, child) if part), attribute, whole, segments)


def _workable(made: Mixing) -> list[int]:
    return [ranks for ranks in range(2, made.units + 1) if made.units % ranks == 0]


def changing(counts: Mapping[str, frozenset[str]], mixer: Mixer) -> list[str]:
    """The integers of which a rank has another number."""
    assert mixer.split is not None
    split = {told for told, cut in mixer.split.counts.items() if any(units > 1 for _, units in cut)}
    return [name for name, told in counts.items() if told & split]


def guesses(named: Mapping[str, int], made: Mixing) -> Iterator[dict[str, Any]]:
    """Which integers of a module count what: fields of a verdict, the likeliest first.

    Args:
        named: its integers.
        made: what they may count.
    """
    ranks = _workable(made)
    options: dict[str, list[frozenset[str]]] = {}
    for name, value in named.items():
        kinds: dict[tuple[int, ...], set[str]] = {}
        for told, cut in counted(value, made.counts).items():
            kinds.setdefault(tuple(count(cut, number) for number in ranks), set()).add(told)
        options[name] = [frozenset(kind) for kind in sorted(kinds.values(), key=len, reverse=True)]
    names = [name for name, kinds in options.items() if kinds]
    every = {name: [*options[name], frozenset[str]()] for name in names}
    for far in range(len(names) + 1):
        for others in combinations(names, far):
            for picks in product(*(every[name][1:] for name in others)):
                kinds_of = {name: every[name][0] for name in names} | dict(zip(others, picks, strict=True))
                picked = tuple((name, kind) for name, kind in kinds_of.items() if kind)
                yield {"local": tuple(name for name, _ in picked), "counts": picked}


class Fits:
    """Whether shares run through a module, by their shapes alone, with some of its integers changed.

    Args:
        call: the module's call.
        made: what its integers may count.
        share: the module as one of several ranks has it, integers aside.
        ranks: how many there are.
    """

    def __init__(self, call: Call, made: Mixing, share: nn.Module, ranks: int) -> None:
        self.call, self.made, self.share, self.ranks = call, made, share, ranks
        self.wanted = _first_shape(call.output)

    def __call__(self, counts: Sequence[tuple[str, frozenset[str]]]) -> bool:
        """Run it with the integers that ``counts`` names."""
        kept: list[tuple[nn.Module, str, int]] = []
        for name, told in counts:
            child, _, attribute = name.rpartition(".")
            owner = self.share.get_submodule(child)
            kept.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, count(self.made.counts[min(told)], self.ranks))
        try:
            with torch.no_grad(), Exact():
                return _first_shape(self.share(*self.call.args, **self.call.kwargs)) == self.wanted
        except AUTHOR_ERRORS:
            return False
        finally:
            for owner, attribute, value in kept:
                setattr(owner, attribute, value)


def _first_shape(value: Any) -> tuple[int, ...]:
    return next((tuple(one.shape) for one in tensors(value)), ())
