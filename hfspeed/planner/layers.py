"""How many layers a small model needs to show every kind of layer that the large one has."""

from __future__ import annotations

from dataclasses import fields

from hfspeed.plan import Op, Plan

MOST_LAYERS = 8
"""A small model never has more layers than this, however many kinds of layer there are."""


def layers_needed(plan: Plan) -> int:
    """The shortest prefix of layers that shows every kind of layer, and at least two."""
    if plan.stages is None:
        return 2
    kinds: dict[int, set[str]] = {}
    start = f"{plan.stages.layers}."
    names = {path: forward.name for forward in plan.forwards for path in forward.paths}
    for op in plan.ops:
        if op.path.startswith(start):
            number, _, inner = op.path.removeprefix(start).partition(".")
            above = names.get(op.path.rpartition(".")[0], "")
            kinds.setdefault(int(number), set()).add(f"{inner} {_shape(op)} {above}")
    seen: set[frozenset[str]] = set()
    needed = 2
    for layer in sorted(kinds):
        if (kind := frozenset(kinds[layer])) not in seen:
            seen.add(kind)
            needed = max(needed, layer + 1)
    return min(needed, MOST_LAYERS, plan.stages.count)


def _shape(op: Op) -> str:
    return repr([getattr(op, f.name) for f in fields(op) if f.name != "path"]) + type(op).__name__
