"""The three plans of a transformers configuration, found from code: proposed by dataflow, kept if they hold."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from hfspeed.graph.record import Recording
from hfspeed.plan import Experts, Plan
from hfspeed.plan.styles import Stage, StylePlans, generic, under
from hfspeed.planner import stretches as styles
from hfspeed.planner.full_size import fits
from hfspeed.planner.looked import RANKS, Looked, spread_of
from hfspeed.planner.simulate import Outcome
from hfspeed.planner.staged import stage_plan
from hfspeed.planner.stretches import Stretch
from hfspeed.refusal import Reason, Refusal

LEAST, SAVED = 0.01, 1024
"""A stretch is left whole that has less of its layer's weights, and fewer for each number that it gives."""


@dataclass(frozen=True)
class Derived:
    """What was found.

    Attributes:
        plans: names count from the base model.
        outcomes: kind of plan, number of ranks or stages, and what came of running it so.
        refusals: what could not be said in these styles, and why.
        ranks: the number of tensor-parallel ranks that the entries fit, at full size, and were run on.
    """

    plans: StylePlans
    outcomes: tuple[tuple[str, int, Outcome], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    ranks: int = RANKS


@dataclass
class _Search:
    """The entries so far, by full name."""

    seen: Looked
    ranks: int = RANKS
    refusals: list[Refusal] = field(default_factory=list)

    def best(self, ways: Iterable[Mapping[str, str]], kind: str = "tp") -> dict[str, str]:
        """The first way that computes the same numbers and gradients, and fits the full size; empty if none does."""
        for way in ways:
            ranks = self.seen.spread if kind == "ep" else self.ranks
            large = spread_of(self.seen.full.model) if kind == "ep" else self.ranks
            if not (self.seen.has(way) and fits(self.seen.full, way, large, kind)):
                continue
            if self.seen.whole.ranks(way, ranks, train=True).equal:
                return dict(way)
        return {}


def derive(seen: Looked, ranks: int = RANKS) -> Derived:
    """The plans of a model for so many ranks; each entry was run, forward and backward, on simulated ones."""
    search = _Search(seen, ranks)
    tp = _ordered(seen.whole.model, _tensor(search))
    ep = _ordered(seen.whole.model, _experts(search))
    pp, told = stage_plan(seen.full, seen.first)
    if pp and not (outcome := staged_outcome(seen, pp, 2)).equal:
        why = f"hidden states handed on as embeddings give something else, on 2 stages: {outcome}"
        pp, told = {}, (*told, Refusal("pp plan", Reason.STAGE_STATE, why, seen.base))
    plans = StylePlans(_from_base(tp, seen.base), pp, _from_base(ep, seen.base))
    return Derived(plans, tuple(prove(seen, plans, (ranks,))), tuple(search.refusals) + told, ranks)


def prove(
    seen: Looked,
    plans: StylePlans,
    ranks: Sequence[int] = (2,),
    stages: Sequence[int] = (2,),
    spread: Sequence[int] = (),
    *,
    train: bool = True,
) -> Iterator[tuple[str, int, Outcome]]:
    """Run plans, whoever made them, on so many ranks and stages; experts by default on as few as divide them."""
    for count in ranks if plans.tp else ():
        plan = {**seen.beside, **under(seen.base, plans.tp)}
        yield "tp", count, seen.whole.ranks(plan, count, train=train)
    for count in spread or (seen.spread,) if plans.ep else ():
        yield "ep", count, seen.whole.ranks(under(seen.base, plans.ep), count, train=train)
    for count in stages if plans.pp else ():
        yield "pp", count, staged_outcome(seen, plans.pp, count)


def staged_outcome(seen: Looked, plan: Mapping[str, Stage], stages: int) -> Outcome:
    """Run a pipeline plan on so many stages."""
    inner = seen.whole.model.get_submodule(seen.base)
    missing = [name for name in plan if name not in dict(inner.named_modules())]
    lists = [name for name in plan if name not in missing and isinstance(inner.get_submodule(name), nn.ModuleList)]
    if missing or len(lists) != 1:
        told = f"`{missing[0]}` does not exist" if missing else f"it names {len(lists)} lists of layers"
        return Outcome(math.inf, error=told)
    return seen.whole.stages(seen.base, list(plan), lists[0], seen.first.wrapper.head, stages)


def _tensor(search: _Search) -> dict[str, str]:
    seen, found = search.seen, dict[str, str]()
    for op in _kinds(seen.first):
        inside = _empty(seen.whole.model, op.path)
        found |= search.best(styles.expert_ways(op, inside))
    for path, module in _stacks(seen, found):
        found |= search.best(styles.shape_ways(module, path, _empty(seen.whole.model, path)))
    for stretch in styles.stretches(seen.recording, seen.base):
        if stretch.names & found.keys() or _in_experts(stretch, found):
            continue
        if not _worth(seen, stretch):
            continue
        way = search.best(styles.ways(stretch, seen.recording))
        found |= way
        if not way:
            search.refusals.append(_unsplit(stretch))
    return found


def _worth(seen: Looked, stretch: Stretch) -> bool:
    """Whether ranks save more than they exchange: it is no small part of its layer, or large for what it gives."""
    model = seen.full.model
    own = [(n, one) for n, one in model.named_parameters() if generic(n).removesuffix(".weight") in stretch.names]
    if not own:
        return True
    layer = re.match(r".*?\.\d+\.", own[0][0])
    prefix = layer[0] if layer else f"{seen.base}."
    here = [one for name, one in own if name.startswith(prefix)]
    size = sum(one.numel() for one in here)
    whole = sum(one.numel() for name, one in model.named_parameters() if name.startswith(prefix))
    return size >= LEAST * whole or size >= SAVED * min(one.shape[0] for one in here)


def _in_experts(stretch: Stretch, found: Mapping[str, str]) -> bool:
    parents = [name for name, style in found.items() if style == "moe_tp_experts"]
    return any(name.startswith(f"{parent}.") for name in stretch.names for parent in parents)


def _unsplit(stretch: Stretch) -> Refusal:
    told = ", ".join(f"`{name}`" for name in (*stretch.columns, *stretch.rows))
    return Refusal("tp plan", Reason.MIXES_SPLIT, f"no style splits {told}", stretch.rows[0])


def _experts(search: _Search) -> dict[str, str]:
    seen, found = search.seen, dict[str, str]()
    for op in _kinds(seen.first):
        way = search.best(styles.spread_ways(op, _routers(seen.recording, op.path)), "ep")
        if not way:
            search.refusals.append(
                Refusal("ep plan", Reason.EXPERTS_AS_WRITTEN, f"no style spreads the experts of `{op.path}`", op.path)
            )
        found |= way
    for path, module in _stacks(seen, found):
        found |= search.best(styles.stack_ways(module, path, _routers(seen.recording, path)), "ep")
    return found


def _stacks(seen: Looked, found: Mapping[str, str]) -> Iterator[tuple[str, nn.Module]]:
    """Other modules with stacked matrices of their own; one of each name."""
    names = set(found)
    for path, call in seen.recording.calls.items():
        stacked = any(one.ndim == 3 for one in call.module.parameters(recurse=False))
        if stacked and generic(path) not in names and path.startswith(f"{seen.base}."):
            names.add(generic(path))
            yield path, call.module


def _kinds(plan: Plan) -> list[Experts]:
    """One op for every generic name."""
    found = {generic(op.path): op for op in reversed(plan.ops) if isinstance(op, Experts)}
    return list(found.values())[::-1]


def _empty(model: nn.Module, path: str) -> tuple[str, ...]:
    """Modules without weights directly in the experts that pass on what they are given."""
    at = generic(path)
    return tuple(
        dict.fromkeys(
            generic(name) for name, one in model.named_modules()
            if generic(name).rpartition(".")[0] == at and isinstance(one, nn.Identity)
        )
    )  # fmt: skip


def _routers(recording: Recording, path: str) -> tuple[str, ...]:
    """Modules called beside the experts that return at least three tensors, by generic name."""
    outer = generic(path).rpartition(".")[0]
    return tuple(
        dict.fromkeys(
            generic(name) for name, call in recording.calls.items()
            if generic(name).rpartition(".")[0] == outer and isinstance(call.output, tuple) and len(call.output) >= 3
        )
    )  # fmt: skip


def _ordered(model: nn.Module, entries: Mapping[str, str]) -> dict[str, str]:
    """Entries in the order of the modules; a module of experts after its parameters."""
    order: dict[str, int] = {}
    for name, module in model.named_modules():
        for parameter, _ in module.named_parameters(recurse=False):
            order.setdefault(generic(f"{name}.{parameter}"), len(order))
        order.setdefault(generic(name), len(order))
    return dict(sorted(entries.items(), key=lambda item: order.get(item[0], len(order))))


def _from_base(entries: Mapping[str, str], base: str) -> dict[str, str]:
    return {name.removeprefix(f"{base}."): style for name, style in entries.items()}
