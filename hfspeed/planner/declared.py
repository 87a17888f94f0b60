"""The tensor-parallel plan that a model declares by hand, held against the one inferred."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from hfspeed.graph.linear import shape_of
from hfspeed.plan import Column, Heads, Op, Plan, Row, Stacked, Whole
from hfspeed.plan.styles import generic
from hfspeed.refusal import Reason, Refusal

_STYLES = {
    "colwise": {"column"},
    "colwise_gather_output": {"column", "whole"},
    "rowwise": {"row"},
    "replicate": {"whole"},
}
"""Styles that speak of one linear alone, and what may be inferred: a gathered one is split for less."""


def disagreements(model: Any, plan: Plan) -> tuple[Refusal, ...]:
    """Entries of the declared plan that match nothing, or that say otherwise than the dataflow."""
    base = plan.wrapper.base
    declared = getattr(getattr(model.get_submodule(base), "config", None), "base_model_tp_plan", None) or {}
    ours = {path: kind for op in plan.ops for path, kind in _kinds(op)}
    if not plan.tensor:
        ours = {}  # nothing is split, for a reason that is told elsewhere
    found = []
    modules: dict[str, list[str]] = {}
    single: dict[str, list[str]] = {}
    for names, given in ((modules, model.named_modules()), (single, model.named_parameters())):
        for path, _ in given:
            names.setdefault(generic(path), []).append(path)  # layers by the hundred differ in their number alone
    for pattern, style in declared.items():
        paths = _named(below(base, pattern), modules)
        linear = [path for path in paths if shape_of(model.get_submodule(path))]
        paths += _named(below(base, pattern), single)
        told = _difference(pattern, str(style), paths, [(p, ours.get(p)) for p in linear])
        if told:
            module = paths[0] if paths else base
            found.append(Refusal("declared plan", Reason.PLAN_DISAGREES, told, module))
    return tuple(found)


def below(base: str, name: str) -> str:
    """The path of what lies at ``name`` in the module at ``base``."""
    return f"{base}.{name}" if base else name


def unmatched(base: nn.Module, names: Iterable[str]) -> list[str]:
    """Names of a plan that are of no module and no parameter of the base model."""
    known = [name for name, _ in (*base.named_modules(), *base.named_parameters(remove_duplicate=False))]
    return [name for name in names if not any(map(_regex(name).match, known))]


def _named(pattern: str, names: Mapping[str, list[str]]) -> list[str]:
    """The names that a pattern is for, among those grouped by what they are without numbers."""
    regex = _regex(pattern)
    return [name for name in names.get(generic(pattern), ()) if regex.match(name)]


def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", r"\d+") + "$")


def _difference(pattern: str, style: str, paths: list[str], ours: list[tuple[str, str | None]]) -> str:
    if not paths:
        return f"`{pattern}` in base_model_tp_plan matches no module"
    wanted = _STYLES.get(style)
    other = {kind for _, kind in ours if kind is not None and wanted is not None and kind not in wanted}
    return f"`{pattern}` is declared {style}, the dataflow says {', '.join(sorted(other))}" if other else ""


def _kinds(op: Op) -> list[tuple[str, str]]:
    outer = op.path.rpartition(".")[0]
    match op:
        case Stacked(parts=parts, split=split) | Heads(parts=parts, split=split):
            return [(f"{outer}.{part}", "column" if split else "whole") for part in parts]
        case Column():
            return [(op.path, "column")]
        case Row():
            return [(op.path, "row")]
        case Whole():
            return [(op.path, "whole")]
    return []
