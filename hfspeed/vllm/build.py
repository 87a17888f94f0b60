"""A plan built out of vLLM's layers, in the author's own module tree: plan op -> builder."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from hfspeed.graph.aside import ASIDE
from hfspeed.plan import OPS, Op, Plan
from hfspeed.plan.ops import (
    Attention,
    Column,
    Embed,
    Experts,
    Gated,
    Head,
    Heads,
    History,
    Keep,
    Local,
    Norm,
    Positions,
    Recurrence,
    Rotary,
    Row,
    Share,
    Stacked,
    Whole,
)
from hfspeed.plan.paths import within
from hfspeed.plan.shares import counted
from hfspeed.vllm.layers.attention import attention
from hfspeed.vllm.layers.embed import embed, head
from hfspeed.vllm.layers.experts import experts
from hfspeed.vllm.layers.gated import gated
from hfspeed.vllm.layers.history import history
from hfspeed.vllm.layers.linear import column, heads, row, stacked, whole
from hfspeed.vllm.layers.norm import keep, norm
from hfspeed.vllm.layers.positions import positions
from hfspeed.vllm.layers.recurrence import recurrence
from hfspeed.vllm.layers.rotary import rotary
from hfspeed.vllm.layers.share import share
from hfspeed.vllm.materialise import in_own_dtype
from hfspeed.vllm.site import Site


def local(op: Local, site: Site) -> None:
    """An integer that counts split things becomes this rank's share."""
    setattr(site.root.get_submodule(op.path), op.attribute, counted(op, site.rank, site.ranks))


BUILDERS: dict[type, Callable[[Any, Site], None]] = {
    Column: column,
    Row: row,
    Whole: whole,
    Stacked: stacked,
    Heads: heads,
    Gated: gated,
    Norm: norm,
    Rotary: rotary,
    Positions: positions,
    Attention: attention,
    Experts: experts,
    Recurrence: recurrence,
    History: history,
    Embed: embed,
    Head: head,
    Keep: keep,
    Share: share,
    Local: local,
}
assert set(BUILDERS) == set(OPS), "every op of the plan needs a builder"


def build(plan: Plan, classes: ModuleType | None, site: Site, absent: Collection[str]) -> None:
    """Turn ``site.root`` into what the plan says, in place.

    Args:
        plan: what was decided.
        classes: the emitted module, with the rewritten classes.
        site: the author's module and vLLM's settings.
        absent: paths that live on other pipeline stages; what is at or below them is left alone.
    """
    for forward in plan.forwards:
        for path in forward.paths:
            if not within(path, absent):
                site.root.get_submodule(path).__class__ = getattr(classes, forward.name)
    for op in plan.ops:
        if not within(op.path, absent):
            with in_own_dtype(site.root, op.path):
                BUILDERS[type(op)](op, site)
    attends = {op.path for op in plan.ops if isinstance(op, Attention)}
    for path, module in site.root.named_modules():
        if path not in attends:  # what the plan does not let attend over tokens attends over something else, if at all
            setattr(module, ASIDE, True)


def packed_names(ops: Collection[Op]) -> dict[str, list[str]]:
    """Merged name -> its parts: what vLLM's adapters and quantised checkpoints go by.

    vLLM has one slot per merged name, so two merges of one name and other parts are told apart by none of them;
    the shorter list would be wrong for one place, so such a name is left out and those layers count as unmerged.
    """
    found: dict[str, list[list[str]]] = {}
    for op in ops:
        if isinstance(op, Stacked | Heads):
            parts, name = list(op.parts), op.path.rpartition(".")[2]
            if parts not in found.setdefault(name, []):
                found[name].append(parts)
    return {name: lists[0] for name, lists in found.items() if len(lists) == 1}
