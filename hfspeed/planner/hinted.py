"""Whether what the author's hints say is what the code does; a hint that is not true is an error at its line."""

from __future__ import annotations

import torch
from torch.fx.node import map_arg

from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import value_of
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful, kernel_at, parameters_of, said_of, tried
from hfspeed.hints import truth
from hfspeed.hints.hint import Hint, read
from hfspeed.plan import Attention, Experts, Heads, Keep, Norm, Plan, Stacked
from hfspeed.planner.study import Study
from hfspeed.planner.witness import distance
from hfspeed.reference.run import first
from hfspeed.refusal import Reason, Refusal

APART = 1e-8
"""The relative error, in float64, from which numbers are other numbers."""


def false_hints(study: Study, plan: Plan) -> tuple[Refusal, ...]:
    """Every hint of the model's classes that the plan disproves, once per class."""
    found: dict[tuple[type, Hint], Refusal] = {}
    for call in study.recording.calls.values():
        names = {name for name, _ in call.module.named_modules() if name}
        missing = truth.false_hints(call.cls, names)
        for refusal in missing:
            found.setdefault((call.cls, read(call.cls)[0]), refusal)
        for hint in read(call.cls) if not missing else ():
            if (lie := _untrue(hint, call, plan)) is not None:
                found.setdefault((call.cls, hint), lie)
    told = tuple(r for r in plan.refusals if r.reason is Reason.FALSE_HINT)
    return (*found.values(), *told)


def false_recurrences(study: Study) -> tuple[Refusal, ...]:
    """Every hint above a function of a small real model that computes something else than is said of it."""
    found: dict[Hint, Refusal] = {}
    for call in study.recording.calls.values():
        for node in call.graph.nodes:
            hint = said_of(node.target) if node.op == "call_function" and is_stateful(node) else None
            kernel = kernel_at(node) if hint is not None else None
            if hint is None or kernel is None:
                continue
            args, keywords = (map_arg(part, value_of) for part in (node.args, node.kwargs))
            with Exact():
                bound = kernel.bind(parameters_of(node.target), args, keywords)
                like = kernel.like(bound.operands)
                empty = torch.zeros(like.shape[0], *kernel.state(bound.operands), dtype=torch.float64)
                ours, theirs = kernel.run(bound.operands, bound.settings, empty)[0], first(value_of(node))
            here = ours.shape != theirs.shape or distance(theirs, ours) > APART
            if here or tried(node.target, kernel) is False:
                name = node.target.__name__
                found[hint] = truth.untrue(hint, name, f"`{name}` computes something else than {kernel.kind}")
    return tuple(found.values())


def _untrue(hint: Hint, call: Call, plan: Plan) -> Refusal | None:
    name = call.cls.__name__
    if hint.kind == "norm" and not _has(plan, Norm, call.path):
        why = next((r.found for r in plan.refusals if r.module == call.path), "it is not called as one")
        return truth.untrue(hint, name, f"`{name}` is no root-mean-square norm: {why}")
    if hint.kind == "attention":
        return _attention(hint, call, plan)
    if hint.kind == "gated_mlp":
        return _gated(hint, call, plan)
    if hint.kind == "experts":
        return _experts(hint, call, plan)
    return None


def _attention(hint: Hint, call: Call, plan: Plan) -> Refusal | None:
    name = call.cls.__name__
    if not _has(plan, Attention, call.path):
        return truth.untrue(hint, name, f"`{name}` does not call the attention interface")
    said = tuple(hint.name(role) for role in ("query", "key", "value"))
    for op in plan.ops:
        if isinstance(op, Heads) and op.path.rpartition(".")[0] == call.path and all(said) and said != op.parts:
            found = "query, key and value are " + ", ".join(f"`{part}`" for part in op.parts)
            return truth.untrue(hint, name, found)
    return None


def _gated(hint: Hint, call: Call, plan: Plan) -> Refusal | None:
    said = (hint.name("gate"), hint.name("up"))
    for op in plan.ops:
        if isinstance(op, Stacked) and op.path.rpartition(".")[0] == call.path and all(said) and said != op.parts:
            found = "gate and up are " + ", ".join(f"`{part}`" for part in op.parts)
            return truth.untrue(hint, call.cls.__name__, found)
    return None


def _experts(hint: Hint, call: Call, plan: Plan) -> Refusal | None:
    """The block has experts, the ones it says; its router leads to them, and what is shared does not."""
    name, parts = call.cls.__name__, {role: hint.name(role) for role in ("router", "experts", "shared")}
    fused = {op.path for op in plan.ops if isinstance(op, Experts)}
    written = {op.path for op in plan.ops if isinstance(op, Keep) and op.gives}
    here = {path for path in fused | written if path == call.path or path.startswith(f"{call.path}.")}
    if not here:
        return truth.untrue(hint, name, f"`{name}` sends no tokens to experts that are chosen for them")
    if call.path in here or not fused & here:
        return None  # nobody looked inside; the plan says so
    if (said := parts["experts"]) and f"{call.path}.{said}" not in here:
        found = ", ".join(f"`{path.removeprefix(f'{call.path}.')}`" for path in sorted(here))
        return truth.untrue(hint, name, f"`{said}` are no experts; those of `{name}` are {found}")
    ahead = _ahead(call, fused & here)
    for role, leads in (("router", True), ("shared", False)):
        if (said := parts[role]) and (f"{call.path}.{said}" in ahead) != leads:
            what = "does not choose the experts" if leads else "leads to the experts, so it is not beside them"
            return truth.untrue(hint, name, f"`{said}` {what}")
    return None


def _ahead(call: Call, experts: set[str]) -> set[str]:
    """Paths of the children whose results reach the experts."""
    ahead, left = set(), [node for node in call.graph.nodes if node.op == "call_module" and node.target in experts]
    while left:
        for node in left.pop().all_input_nodes:
            if node not in ahead:
                ahead.add(node)
                left.append(node)
    return {str(node.target) for node in ahead if node.op == "call_module"}


def _has(plan: Plan, kind: type, path: str) -> bool:
    return any(isinstance(op, kind) and op.path == path for op in plan.ops)
