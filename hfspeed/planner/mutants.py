"""Deliberately wrong plans of styles, one entry changed in each: whatever proves plans must catch all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torch import nn

from hfspeed.plan.styles import Stage, StylePlans, generic
from hfspeed.planner.looked import RANKS, Looked
from hfspeed.planner.simulate import Outcome
from hfspeed.planner.styled import prove

WHOLE_TO_WHOLE = {None, "colwise_gather_output", "rowwise_split_input", "embedding_rowwise"}
"""Styles of a linear or a table that take a whole value and give a whole value; one for another changes no number."""
CUT = {"colwise_gather_output": "colwise", "rowwise_split_input": "rowwise"}
"""How a single parameter is cut, of which nobody installs a forward."""
WRONG: Mapping[str, tuple[str | None, ...]] = {
    "colwise": (None, "rowwise", "packed_colwise", "colwise_gather_output"),
    "rowwise": (None, "colwise", "rowwise_split_input"),
    "packed_colwise": (None, "colwise", "rowwise", "colwise_gather_output"),
    "packed_rowwise": (None, "rowwise", "colwise"),
    "colwise_gather_output": (None, "colwise", "rowwise", "rowwise_split_input"),
    "rowwise_split_input": (None, "rowwise", "colwise", "colwise_gather_output"),
    "replicated_with_grad_allreduce": (None, "all_reduce"),
    "mla_kv_a_proj": (None, "colwise"),
    "moe_tp_experts": (None, "all_reduce"),
    "moe_identity_expert": (None, "all_reduce"),
    "grouped_gemm": (None, "colwise"),
    "ep_dispatch_experts": (None, "moe_tp_experts"),
    "ep_router": (None, "all_reduce"),
}
"""What stands instead of each style; ``None``: the entry is dropped."""


@dataclass(frozen=True)
class Mutant:
    """A plan with one entry changed.

    Attributes:
        kind: which of the plans.
        what: the change, in words.
        plans: only that plan, changed.
        argument: why it is as right as before; empty where it is wrong.
    """

    kind: str
    what: str
    plans: StylePlans
    argument: str = ""


def mutants(plans: StylePlans, base: nn.Module) -> Iterator[Mutant]:
    """Every entry of every plan, changed in turn."""
    single = {generic(name): one.ndim for name, one in base.named_parameters()}
    for kind, plan in (("tp", plans.tp), ("ep", plans.ep)):
        for name, style in plan.items():
            for other in WRONG.get(style, (None,)):
                changed = {key: value for key, value in plan.items() if key != name or other is not None}
                changed |= {name: other} if other is not None else {}
                counted = sum(entry == "grouped_gemm" for entry in plan.values()) > 1
                why = _right(style, other, single.get(name, 0), counted=counted)
                made = StylePlans(tp=changed) if kind == "tp" else StylePlans(ep=changed)
                yield Mutant(kind, f"`{name}`: {other or 'no entry'} instead of {style}", made, why)
    yield from _stages(plans.pp, base)


def _right(style: str, other: str | None, dimensions: int, *, counted: bool) -> str:
    """Why one style is as right as another; empty where it is not. ``dimensions``: of a single parameter, else 0.

    ``counted``: other entries as well let a module count its own experts.
    """
    if dimensions:
        cuts = {CUT.get(one or "", one) for one in (style, other)}
        if dimensions == 2 and counted:  # what comes before the last dimension counts experts
            cuts = {"colwise" if one == "grouped_gemm" else one for one in cuts}
        return "of a single parameter both cut the same dimension, and nothing else" if len(cuts) == 1 else ""
    return "both take a whole value and give a whole one" if {style, other} <= WHOLE_TO_WHOLE else ""


def _stages(plan: Mapping[str, Stage], base: nn.Module) -> Iterator[Mutant]:
    names = list(plan)
    lists = [name for name in names if isinstance(base.get_submodule(name), nn.ModuleList)]
    at = names.index(lists[0]) if lists else 0
    for number, name in enumerate(names):
        kept = {key: plan[key] for key in names if key != name}
        module = base.get_submodule(name)
        why = ""
        if number < at and isinstance(module, nn.Embedding):
            why = "later stages are given embeddings, so nothing calls it there"
        elif isinstance(module, nn.Dropout | nn.Identity):
            why = "in evaluation it gives what it is given"
        yield Mutant("pp", f"`{name}`: no entry", StylePlans(pp=kept), why)
        if number == at or isinstance(module, nn.Dropout | nn.Identity):
            continue
        order = [key for key in names if key != name]
        order.insert(0 if number > at else len(order), name)
        moved = StylePlans(pp={key: plan[key] for key in order})
        yield Mutant("pp", f"`{name}`: on the other side of the layers", moved)


@dataclass(frozen=True)
class Killed:
    """What became of the mutants.

    Attributes:
        caught: those that were seen to be wrong, with how.
        alive: wrong ones that nothing was seen of.
        equivalent: those that are right, by the argument that they carry.
    """

    caught: tuple[tuple[Mutant, Outcome], ...] = ()
    alive: tuple[Mutant, ...] = ()
    equivalent: tuple[Mutant, ...] = ()


def killed(seen: Looked, plans: StylePlans, ranks: int = RANKS) -> Killed:
    """Run every mutant on so many ranks, or on as few stages as there can be; those with an argument must be right.

    One whose sizes do not divide, so that it does not run, is caught whatever its argument.

    Raises:
        AssertionError: a mutant is wrong although its argument says that it is right.
    """
    found = Killed()
    for mutant in mutants(plans, seen.whole.model.get_submodule(seen.base)):
        outcomes = [outcome for _, _, outcome in prove(seen, mutant.plans, (ranks,))]
        outcome = outcomes[0] if outcomes else None
        if mutant.argument and not (outcome is not None and outcome.error):
            assert outcome is None or outcome.equal, f"{mutant.kind} {mutant.what}: {mutant.argument}, but {outcome}"
            found = replace(found, equivalent=(*found.equivalent, mutant))
        elif outcome is None or outcome.equal:
            found = replace(found, alive=(*found.alive, mutant))
        else:
            found = replace(found, caught=(*found.caught, (mutant, outcome)))
    return found
