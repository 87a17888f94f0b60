"""How many layers a small model needs to show every kind of layer that the large one has."""

from __future__ import annotations

import re
from dataclasses import fields

from torch import nn

from hfspeed.plan import Op, Plan
from hfspeed.plan.sizes import ruled_out
from hfspeed.refusal import Reason, Refusal

MOST_LAYERS = 8
"""A small model never has more layers than this, however many kinds of layer there are."""
ALL_LAYERS = 48
"""Unless a loop over its layers does something that only shows in all of them, and they are not more than these."""


def fewest(plan: Plan, most: int) -> int:
    """The fewest ranks, two or more and ``most`` at most, that the sizes of a model allow; two where none do."""
    return next((count for count in range(2, most + 1) if not [*ruled_out(plan, count)]), 2)


def depths(plan: Plan, stages: int = 2) -> tuple[int, ...]:
    """How many layers a small model has, and how many it has if it never does what the large one does."""
    needed, (_, count) = layers_needed(plan, stages), _layers(plan)
    return (needed, count) if needed < count <= ALL_LAYERS else (needed,)


def layers_needed(plan: Plan, stages: int = 2) -> int:
    """The shortest prefix of layers that shows every kind of layer, and at least one for each of ``stages``."""
    layers, count = _layers(plan)
    if not layers:
        return 2
    kinds: dict[int, set[str]] = {}
    start = f"{layers}."
    names = {path: forward.name for forward in plan.forwards for path in forward.paths}
    for op in plan.ops:
        if op.path.startswith(start):
            number, _, inner = op.path.removeprefix(start).partition(".")
            above = names.get(op.path.rpartition(".")[0], "")
            kinds.setdefault(int(number), set()).add(f"{inner} {_shape(op)} {above}")
    seen: set[frozenset[str]] = set()
    needed = max(2, stages)
    for layer in sorted(kinds):
        if (kind := frozenset(kinds[layer])) not in seen:
            seen.add(kind)
            needed = max(needed, layer + 1)
    return min(needed, max(MOST_LAYERS, stages), count)


def _layers(plan: Plan) -> tuple[str, int]:
    """The list of layers, and how many; where nothing can be cut, the list whose members have the most ops."""
    if plan.stages is not None:
        return plan.stages.layers, plan.stages.count
    found: dict[str, set[int]] = {}
    for op in plan.ops:
        if match := re.match(r"(.*?)\.(\d+)\.", op.path):
            found.setdefault(match[1], set()).add(int(match[2]))
    name = max(found, key=lambda one: len(found[one]), default="")
    return name, len(found.get(name, ()))


def _shape(op: Op) -> str:
    return repr([getattr(op, f.name) for f in fields(op) if f.name != "path"]) + type(op).__name__


def without_layers(model: nn.Module) -> Refusal | None:
    """The first list of modules that is empty, if one is."""
    empty = next((path for path, one in model.named_modules() if isinstance(one, nn.ModuleList) and not len(one)), None)
    if empty is None:
        return None
    help_ = "say in the configuration how many there are, one or more"
    found = f"`{empty}` has no layers"
    return Refusal("model", Reason.NO_DECODER_LAYERS, found, type(model).__name__, help=help_)
