"""Law 1 of a plan: every tensor of the author's has one destination, and every parameter is filled once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hfspeed.plan import paths, rows, shares
from hfspeed.plan.ops import Attention, Column, Embed, Experts, Head, Heads, Keep, Norm, Op, Row, Share, Stacked, Whole
from hfspeed.plan.plan import Plan

LINEAR = (Column, Row, Whole, Stacked, Heads)
"""Ops whose ``weight`` is a matrix ``[outputs, inputs]``."""


def destinations(plan: Plan) -> Iterator[str]:
    """Law 1: every parameter has exactly one destination or is tied, and every destination is filled."""
    sources = Counter([weight.source for weight in plan.weights] + [tie.source for tie in plan.ties])
    yield from (f"{name} has {count} destinations, expected one" for name, count in sources.items() if count > 1)
    filled = Counter([(weight.target, weight.part) for weight in plan.weights])
    filled.update((tie.source, None) for tie in plan.ties)
    yield from (f"{_part(*slot)} is filled {count} times, expected once" for slot, count in filled.items() if count > 1)
    wanted = {slot for op in plan.ops for slot in _slots(op)}
    kept = {op.path for op in plan.ops if isinstance(op, Keep)}
    tied = {tie.source for tie in plan.ties}  # perhaps one module under two names, which is built once
    yield from (f"{_part(*slot)} is filled by nothing" for slot in sorted(wanted - filled.keys(), key=str))
    for target, part in sorted(filled.keys() - wanted, key=str):
        if part is not None or not (target in tied or any(one in kept for one in (target, *paths.outer(target)))):
            yield f"{_part(target, part)} is filled, but no op has such a parameter"
    parts = {op.path: op.parts for op in plan.ops if isinstance(op, Stacked | Heads)}
    for weight in plan.weights:
        path, _, name = weight.target.rpartition(".")
        if weight.part is None or path not in parts or not 0 <= weight.part < len(parts[path]):
            continue
        if weight.source != (wanted_source := f"{paths.joined(paths.parent(path), parts[path][weight.part])}.{name}"):
            yield f"{_part(weight.target, weight.part)} is filled by {weight.source}, expected {wanted_source}"
    yield from _arranged(plan)
    targets = {weight.target for weight in plan.weights} | sources.keys()
    yield from (f"{t.source} is tied to {t.target}, which nothing fills" for t in plan.ties if t.target not in targets)


def _arranged(plan: Plan) -> Iterator[str]:
    """Rows are moved only within one packed projection, and none is lost; only matrices of linears are turned."""
    matrices = {f"{op.path}.weight" for op in plan.ops if isinstance(op, LINEAR)}
    for op in plan.ops:
        if isinstance(op, Heads) and len(op.parts) not in {1, 3}:
            yield f"{op.path} is made of {len(op.parts)} projections, expected one or three"
        if isinstance(op, Stacked | Heads) and op.rows:
            wide = sum(shares.parts(op))
            if len(op.parts) > 1:
                yield f"{op.path} moves rows, but is made of {len(op.parts)} projections"
            elif not rows.is_order(op.rows, wide):
                yield f"{op.path} holds rows that are not each of {wide} rows once"
    for weight in plan.weights:
        if weight.transposed and weight.target not in matrices:
            yield f"{weight.target} is turned, but is the matrix of no linear"


def _slots(op: Op) -> list[tuple[str, int | None]]:
    """The parameters of the built op, and the parts of each."""
    match op:
        case Stacked() | Heads():
            count = len(op.parts)
            numbers: list[int | None] = [None] if len(set(op.parts)) == 1 else list(range(count))
            names = ("weight", "bias") if op.bias else ("weight",)
            return [(f"{op.path}.{name}", number) for name in names for number in numbers]
        case Column() | Row() | Whole() | Head():
            return [(f"{op.path}.{name}", None) for name in (("weight", "bias") if op.bias else ("weight",))]
        case Experts():
            held = (*op.up, op.down, *op.up_bias, *([op.down_bias] if op.down_bias else []))
            numbers = list(range(op.count)) if op.apart else [None]
            return [(f"{op.path}.{name}", number) for name in held for number in numbers]
        case Share():
            return [(op.path, None)] if op.stored else []
        case Embed():
            return [(f"{op.path}.weight", None)]
        case Norm():
            return [(f"{op.path}.weight", None)] if op.weight != "none" else []
        case Attention():
            return [(f"{op.path}.{op.sinks}", None)] if op.sinks else []
    return []


def _part(target: str, part: int | None) -> str:
    return target if part is None else f"part {part} of {target}"
