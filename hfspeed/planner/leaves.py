"""Ops of single modules: token table, output projection, linears no fusion took, and what stays as written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.graph.hollow import fits, template
from hfspeed.graph.linear import Shape, changed, shape_of
from hfspeed.graph.record import Call
from hfspeed.pattern.probe import CannotProbe, row_scale
from hfspeed.pattern.replacement import place_of
from hfspeed.plan import Column, Embed, Head, Keep, Op, Row, Whole
from hfspeed.plan.segments import Segment
from hfspeed.planner.ends import table_of
from hfspeed.planner.wrapper import name_of
from hfspeed.refusal import Reason, Refusal


@dataclass(frozen=True)
class Splits:
    """What goes over the ranks: columns with their units and perhaps segments, rows, gathered children with units."""

    columns: Mapping[str, int] = field(default_factory=dict)
    rows: frozenset[str] = frozenset()
    gathered: Mapping[str, int] = field(default_factory=dict)
    segments: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)


def ends(model: Any, twin: Any, head: str, read: Collection[str] = ()) -> Iterator[Op]:
    """The token table and the output projection; as the author made them where their weights are ``read`` elsewhere."""
    embed = name_of(model, table_of(model))
    table, projection = table_of(model), model.get_submodule(head)
    vocab, size = (int(n) for n in table.weight.shape)
    read = {*read, *(path for path, one in ((embed, table), (head, projection)) if changed(one))}
    if getattr(projection, "weight", None) is table.weight and {embed, head} & read:
        read = {embed, head}  # they are one
    try:
        scale = row_scale(table_of(twin), vocab)
    except CannotProbe:
        scale = None
    bounded = getattr(table, "max_norm", None) is not None  # rows are made shorter when they are looked up
    if head == embed:  # one weight makes logits too
        yield Keep(embed)
        return
    if scale is None or embed in read or bounded:
        parts = any(True for _ in table.children())  # what is in it stands for itself
        yield Keep(f"{embed}.weight" if parts else embed)
    else:
        yield Embed(embed, vocab, size, scale)
    if type(projection) is nn.Linear and head not in read:
        bias = projection.bias is not None
        yield Head(head, projection.out_features, projection.in_features, bias)
    else:
        yield Keep(head)


def linear(path: str, shape: Shape, splits: Splits) -> Op:
    """The op of one plain linear that no fusion took."""
    facts = (path, shape.inputs, shape.outputs, shape.bias)
    if path in splits.columns:
        return Column(*facts, units=splits.columns[path], segments=splits.segments.get(path, ()))
    return Row(*facts) if path in splits.rows else Whole(*facts)


def kept(
    model: nn.Module,
    claimed: frozenset[str],
    splits: Splits,
    whole: Collection[str] = (),
    read: Collection[str] = (),
) -> Iterator[Op]:
    """Every linear, and every module or lone parameter with weights, that nothing has claimed.

    ``whole`` are paths that are claimed with all that is below them; ``read`` are linears whose weights somebody else
    reads, so that they must stay what the author made them.
    """
    inside = tuple(f"{path}." for path in whole)
    for path, module in model.named_modules():
        if path in whole or path.startswith(inside):
            continue
        own = [*module._parameters.items(), *_persistent(module)]
        held = [name for name, value in own if value is not None]
        names = [name for name in held if f"{path}.{name}" not in claimed]
        if not names or path in claimed:
            continue
        if (shape := shape_of(module)) and path not in read:
            yield linear(path, shape, splits)
        elif any(True for _ in module.children()) or f"{path}." in claimed or len(names) < len(held):
            yield from (Keep(f"{path}.{name}" if path else name) for name in names)
        else:
            yield Keep(path, splits.gathered.get(path, 0))


def as_written(call: Call, tokens: int) -> tuple[Keep, Refusal]:
    """A module that decides by values, kept with all that is below it; and what that costs."""
    gives = template(call.module, call.args, call.kwargs, tokens)
    if gives is None or not fits(gives, call.output, tokens):
        found = f"what `{call.cls.__name__}` returns has shapes that hang on values, so nobody can look past it"
        raise RefusedError(call.path, (Refusal("experts", Reason.CANNOT_RUN, found, call.path, place_of(call)),))
    found = f"`{call.cls.__name__}` decides by values and runs as written, outside of compiled graphs and on every rank"
    help_ = "give the experts a module of their own that takes tokens, chosen experts and weights"
    told = Refusal("experts", Reason.EXPERTS_AS_WRITTEN, found, call.path, place_of(call), help=help_)
    return Keep(call.path, gives=gives), told


def _persistent(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in module._buffers.items():
        if name not in module._non_persistent_buffers_set:
            yield name, value
