"""A plan built in plain torch from the author's model with its weights: op type -> builder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch
from torch import nn

from hfspeed.errors import PlanError
from hfspeed.plan import OPS, Op, Plan, rows, shares
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
from hfspeed.recurrences.written import write, written_of
from hfspeed.reference import experts, layers, linears, positions
from hfspeed.reference.answers import answers
from hfspeed.reference.packing import Packing
from hfspeed.reference.ranks import Alone, Group
from hfspeed.reference.recurrence import Recurring, Remembering
from hfspeed.reference.stages import cut


@dataclass
class Site:
    """One rank and stage under construction.

    Attributes:
        root: the copy of the author's model that is being changed.
        state: the author's tensors by name.
        slots: parameter of the built model -> part -> name in ``state``.
        transposed: names in ``state`` of matrices kept as ``[inputs, outputs]``.
        filled: parameters that hold what the plan says.
    """

    root: nn.Module
    state: dict[str, torch.Tensor]
    slots: dict[str, dict[int | None, str]]
    rank: int
    ranks: int
    group: Group
    packing: Packing
    spread: Group | None = None
    filled: set[str] = field(default_factory=set)
    transposed: frozenset[str] = frozenset()

    def whole(self, op: Op, name: str, *shape: int) -> torch.Tensor:
        """The author's tensor for the parameter ``name`` of ``op``; must have this shape."""
        (tensor,) = self.parts(op, name, ((*shape,),))
        return tensor

    def parts(self, op: Op, name: str, shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
        """The author's tensors for the parts of one parameter; one tensor that holds all of them is cut."""
        target = f"{op.path}.{name}"
        sources = self.slots.get(target, {})
        if not sources:
            raise PlanError(f"{target}: no weight of the plan fills it")
        if missing := [source for source in sources.values() if source not in self.state]:
            raise PlanError(f"{target}: the author's model has no {', '.join(missing)}")
        found = [self._tensor(op, sources[part]) for part in sorted(sources, key=lambda part: part or 0)]
        if len(found) == 1 and len(shapes) > 1 and found[0].shape[0] == sum(shape[0] for shape in shapes):
            found = list(torch.split(found[0], [shape[0] for shape in shapes]))
        if tuple(tuple(tensor.shape) for tensor in found) != shapes:
            raise PlanError(f"{target}: the author's weights are {[(*one.shape,) for one in found]}, not {[*shapes]}")
        self.filled.add(target)
        return found

    def _tensor(self, op: Op, source: str) -> torch.Tensor:
        """The author's tensor, turned and with its rows in the order of ``op``."""
        tensor = self.state[source].t() if source in self.transposed else self.state[source]
        moved = op.rows if isinstance(op, (Stacked, Heads)) else ()
        return tensor[rows.order(moved)] if moved else tensor

    def put(self, path: str, module: nn.Module) -> None:
        """Place ``module`` at ``path``, where it answers for what is there."""
        above, _, name = path.rpartition(".")
        parent = self.root.get_submodule(above)
        setattr(parent, name, answers(module, parent._modules.get(name)))


def build(
    plan: Plan,
    model: nn.Module,
    classes: ModuleType | None,
    *,
    rank: int = 0,
    ranks: int = 1,
    group: Group | None = None,
    stage: tuple[int, int] | None = None,
    under: str = "",
    strict: bool = True,
    spread: Group | None = None,
) -> nn.Module:
    """Build one rank of one stage.

    Args:
        plan: what was decided.
        model: the author's ``ForCausalLM`` with real weights; copied, not changed.
        classes: the emitted module; ``None`` when the plan rewrites no forward.
        rank / ranks / group: which rank this is, of how many, and how it meets the others.
        stage: ``(number, count)`` of a pipeline stage, ``None`` for the whole model.
        under / strict: build only what lies at or below this path; require that the plan fills all parameters of it.
        spread: the ranks among which whole experts are spread; else each expert is cut, like all the rest.

    Returns:
        The copy, built; its `Packing` is at ``hfspeed_packing``.

    Raises:
        PlanError: the plan does not fit the model, or leaves a parameter unfilled.
    """
    slots: dict[str, dict[int | None, str]] = {}
    for weight in plan.weights:
        slots.setdefault(weight.target, {})[weight.part] = weight.source
    for tie in plan.ties:
        slots.setdefault(tie.source, slots.get(tie.target, {}))
    with torch.no_grad():
        root = copy.deepcopy(model)
        site = Site(root, dict(model.state_dict()), slots, rank, ranks, group or Alone(), Packing(), spread)
        site.transposed = frozenset(weight.source for weight in plan.weights if weight.transposed)
        absent = cut(plan, root, stage)
        for forward in plan.forwards:
            for path in forward.paths:
                if _within(path, under) and not within(path, absent):
                    root.get_submodule(path).__class__ = getattr(classes, forward.name)
        for op in plan.ops:
            if _within(op.path, under) and not within(op.path, absent):
                BUILDERS[type(op)](op, site)
        _fill(site, under)
        if strict:
            _complete(site, under, absent)
    root.hfspeed_packing = site.packing  # type: ignore[assignment]
    return root.requires_grad_(False)


def _gated(op: Gated, site: Site) -> None:
    site.put(op.path, layers.GatedAct(op.act))


def _norm(op: Norm, site: Site) -> None:
    weight = site.whole(op, "weight", op.size).clone() if op.weight != "none" else None
    site.put(op.path, layers.RmsNorm(op, weight, site.group))


def _attention(op: Attention, site: Site) -> None:
    module = site.root.get_submodule(op.path)
    module.attn = layers.CausalAttention(op, site.packing, site.group)
    if op.sinks:
        start, stop = shares.span(op.heads, site.rank, site.ranks if op.split else 1)
        setattr(module, op.sinks, nn.Parameter(site.whole(op, op.sinks, op.heads)[start:stop].clone()))


def _experts(op: Experts, site: Site) -> None:
    author, tensors = site.root.get_submodule(op.path), experts.whole(op, site.parts)
    built = experts.ExpertShare(op, tensors, author, site.group, site.spread)
    site.put(op.path, built)
    site.filled.update(f"{op.path}.{name}" for name, _ in built.named_parameters())


def _recurrence(op: Recurrence, site: Site) -> None:
    setattr(site.root.get_submodule(op.path), op.name, Recurring(op, site.packing, site.ranks))


def _share(op: Share, site: Site) -> None:
    above, _, name = op.path.rpartition(".")
    module, spans = site.root.get_submodule(above), shares.rows_of(op, site.rank, site.ranks)
    if op.stored:
        mine = layers.picked(site.state[site.slots[op.path][None]], spans, op.dim)
        site.filled.add(op.path)
        setattr(module, name, nn.Parameter(mine) if name in module._parameters else mine)
    else:
        setattr(module, name, layers.picked(getattr(module, name), spans, op.dim))


def _history(op: History, site: Site) -> None:
    module = site.root.get_submodule(op.path)
    if op.eager:
        write(module, written_of(op.masks, op.inputs))
    module.forward = Remembering(op, module.forward, site.packing)


def _embed(op: Embed, site: Site) -> None:
    start, stop = shares.vocabulary(op.vocab, site.rank, site.ranks)
    weight = site.whole(op, "weight", op.vocab, op.size)[start:stop].clone()
    site.put(op.path, layers.TokenTable(weight, op.vocab, op.scale, site.group))


def _head(op: Head, site: Site) -> None:
    start, stop = shares.vocabulary(op.vocab, site.rank, site.ranks)
    weight = site.whole(op, "weight", op.vocab, op.size)[start:stop].clone()
    bias = site.whole(op, "bias", op.vocab)[start:stop] if op.bias else None
    site.put(op.path, layers.OutputHead(weight, bias, op.vocab, site.group))


def _keep(op: Keep, site: Site) -> None:
    if op.units and site.ranks > 1:
        layers.on_whole(
            site.root.get_submodule(op.path),
            lambda value: layers.gather(value, op.units, site.group),
            lambda value: layers.keep(value, op.units, site.group),
        )


def _local(op: Local, site: Site) -> None:
    setattr(site.root.get_submodule(op.path), op.attribute, shares.counted(op, site.rank, site.ranks))


BUILDERS: dict[type, Callable[[Any, Site], None]] = {
    Column: linears.column,
    Row: linears.row,
    Whole: linears.whole,
    Stacked: linears.stacked,
    Heads: linears.stacked,
    Gated: _gated,
    Norm: _norm,
    Rotary: lambda op, site: site.put(op.path, positions.Rotation(op)),
    Positions: lambda op, site: site.put(op.path, positions.Rows(op, site.root.get_submodule(op.path))),
    Attention: _attention,
    Experts: _experts,
    Recurrence: _recurrence,
    History: _history,
    Embed: _embed,
    Head: _head,
    Keep: _keep,
    Share: _share,
    Local: _local,
}
assert set(BUILDERS) == set(OPS), "every op of the plan needs a builder"


def _fill(site: Site, under: str) -> None:
    """Copy the weights of what stays the author's, from where the plan says they come."""
    owned = {**dict(site.root.named_buffers()), **dict(site.root.named_parameters(remove_duplicate=False))}
    done = {id(owned[name]) for name in site.filled if name in owned}  # one module may stand under two names
    for target, sources in site.slots.items():
        if target in owned and id(owned[target]) not in done and _within(target, under) and set(sources) == {None}:
            owned[target].copy_(site.state[sources[None]])
            site.filled.add(target)


def _complete(site: Site, under: str, absent: set[str]) -> None:
    for name, _ in site.root.named_parameters():
        if name not in site.filled and _within(name, under) and not within(name, absent):
            raise PlanError(f"{name}: the built model needs this parameter, but no weight of the plan fills it")


def _within(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}.")
