"""The seven laws of a plan, and whether it can be built on a number of ranks and stages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from hfspeed.errors import PlanError
from hfspeed.plan import paths, segments, shares
from hfspeed.plan.filling import destinations
from hfspeed.plan.linears import taken
from hfspeed.plan.ops import (
    Attention,
    Column,
    Experts,
    Gated,
    Heads,
    History,
    Keep,
    Local,
    Norm,
    Op,
    Positions,
    Recurrence,
    Rotary,
    Row,
    Share,
    Stacked,
    Whole,
)
from hfspeed.plan.plan import Plan

FUSED = (Stacked, Heads, Gated, Norm, Experts, Rotary, Positions)
"""Kinds of ops that replace several of the author's operations, and so need a proof."""


def fused(op: Op) -> bool:
    """Whether ``op`` replaces several of the author's operations, or one that was no module."""
    return isinstance(op, FUSED) or bool(taken(op))


def verify(plan: Plan, *, ranks: int = 1, stages: int = 1, proven: bool = False) -> None:
    """Check every law.

    Args:
        plan: the plan.
        ranks: how many ranks split the tensors.
        stages: how many pipeline stages there are.
        proven: ask for proofs even when the plan has none yet (law 7 is otherwise silent about such a plan).

    Raises:
        PlanError: at least one law is broken; the message has one line for each breach.
    """
    broken = [
        *(f"law 1: {text}" for text in destinations(plan)),
        *(f"law 2: {text}" for text in splits(plan)),
        *(f"law 3: {text}" for text in division(plan, ranks)),
        *(f"law 4: {text}" for text in partition(plan, stages)),
        *(f"law 5: {text}" for text in claims(plan)),
        *(f"law 6: {text}" for text in promises(plan)),
        *(f"law 7: {text}" for text in proofs(plan, proven=proven)),
    ]
    if broken:
        told = "\n".join(f"  {text}" for text in once(broken))
        raise PlanError(f"the plan of {plan.architecture} breaks its laws:\n{told}")


def once(breaches: Iterable[str]) -> list[str]:
    """Breaches that differ only in layer numbers, told once: ``model.layers.[0-31].mlp …``."""
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for text in breaches:
        words = text.split(" ")
        alike.setdefault(tuple(paths.shape(word) if word[:1].isalpha() else word for word in words), []).append(words)
    return [
        " ".join(" ".join(paths.merge(column)) if column[0][:1].isalpha() else column[0] for column in columns)
        for columns in (list(zip(*found, strict=True)) for found in alike.values())
    ]


def claim(op: Op) -> str:
    """What a proof of this op is called: ``"heads at model.layers.*.self_attn.qkv_proj"``.

    Layer numbers are left out, so that a proof made on a small model of the same shape speaks for the large one.
    """
    return f"{type(op).__name__.lower()} at {paths.shape(op.path)}"


def splits(plan: Plan) -> Iterator[str]:
    """Law 2: a split value meets only readers that expect it split."""
    if not plan.tensor:
        yield from (f"{op.path} is split, but the plan says that nothing can be" for op in plan.ops if _of_ranks(op))
        return
    split, joins = [op for op in plan.ops if _splits(op)], [op for op in plan.ops if isinstance(op, Row)]
    scopes, above = {_scope(op) for op in split}, {outer for join in joins for outer in ("", *paths.outer(join.path))}
    for op in split:
        if not joins or _scope(op) not in above:
            yield f"{op.path} gives a split value, but no Row beside it adds the shares up"
    for join in joins:
        if scopes.isdisjoint(("", *paths.outer(join.path))):
            yield f"{join.path} reads a split value, but nothing beside it splits one"
    attentions = {op.path: op for op in plan.ops if isinstance(op, Attention)}
    for op in plan.ops:
        attention = attentions.get(paths.parent(op.path))
        if not isinstance(op, Heads) or attention is None:
            continue
        mine = (op.heads, op.kv_heads, op.head_size, op.value_size, op.split)
        reads = attention.heads, attention.kv_heads, attention.head_size, attention.value_size, attention.split
        if mine != reads:
            yield f"{op.path} gives heads {mine}, but the attention beside it reads {reads}"


def division(plan: Plan, ranks: int) -> Iterator[str]:
    """Law 3: a split dimension divides, or repeats where the plan says so."""
    if ranks > 1 and not plan.tensor:
        yield f"{plan.architecture} cannot be split over {ranks} ranks; the plan's refusals say why"
        return
    yield from key_widths(plan, ranks)
    for op in plan.ops:
        if told := _cut_badly(op):
            yield f"{op.path} {told}"
        elif isinstance(op, Column) and (op.units < 1 or (not op.segments and op.outputs % op.units)):
            yield f"{op.path} has {op.outputs} outputs, which {op.units} units do not divide"
        elif isinstance(op, Heads | Attention) and (op.kv_heads < 1 or op.heads % op.kv_heads):
            yield f"{op.path} has {op.heads} heads, which {op.kv_heads} key heads do not divide"
        elif isinstance(op, Norm) and op.units and op.size % op.units:
            yield f"{op.path} has {op.size} elements, which {op.units} units do not divide"
        elif not shares.divides(op, ranks):
            able = ", ".join(str(number) for number in shares.workable(op))
            yield f"{op.path} cannot be split over {ranks} ranks ({counts(op)}); it can over {able}"


def _cut_badly(op: Op) -> str:
    """What is wrong with segments: they must be of equal blocks, and as long as what they are segments of."""
    found = getattr(op, "segments", ())
    wanted = {
        Column: lambda one: one.outputs,
        Stacked: lambda one: sum(one.sizes),
        Local: lambda one: one.whole,
        Recurrence: lambda one: one.state[0],
    }.get(type(op))
    if any(size < 1 or units < 1 or size % units for size, units in found):
        return "has segments that are not of equal blocks"
    if found and wanted is not None and segments.rows(found) != wanted(op):
        return f"has segments of {segments.rows(found)}, expected {wanted(op)}"
    return ""


def key_widths(plan: Plan, ranks: int) -> Iterator[str]:
    """A width of all key heads is no plain share where key heads repeat on several ranks."""
    repeated = {op.path: op for op in plan.ops if isinstance(op, Attention) and op.split and op.kv_heads % ranks}
    for op in plan.ops:
        if isinstance(op, Local) and (attention := repeated.get(op.path)):
            heads, keys = attention.heads, attention.kv_heads
            counts = {heads, heads * attention.head_size, heads * attention.value_size, keys}
            if op.whole not in counts:
                has = f"{op.path}.{op.attribute} = {op.whole}"
                yield f"{has} has no share where {keys} key heads repeat on {ranks} ranks"


def partition(plan: Plan, count: int) -> Iterator[str]:
    """Law 4: stages partition the decoder layers in order, and what crosses a cut is named."""
    stages = plan.stages
    if stages is None:
        if count > 1:
            yield f"{plan.architecture} cannot be cut into {count} stages; the plan's refusals say why"
        return
    if count > stages.count:
        yield f"{stages.layers} has {stages.count} layers, too few for {count} stages"
    if not stages.carried.isidentifier():
        yield f"what crosses a cut of {stages.layers} has no name: {stages.carried!r}"
    if stages.decoder and not stages.layers.startswith(f"{stages.decoder}."):
        yield f"{stages.layers} does not lie in the decoder {stages.decoder}"
    if not any(stages.decoder in forward.paths for forward in plan.forwards):
        yield f"no rewritten forward hands the value on at {stages.decoder}"
    inside = [op.path.removeprefix(f"{stages.layers}.") for op in plan.ops if op.path.startswith(f"{stages.layers}.")]
    numbers = {int(first) for path in inside if (first := path.split(".")[0]).isdigit()}
    if numbers and max(numbers) >= stages.count:
        yield f"{stages.layers}.{max(numbers)} is claimed, but the plan counts {stages.count} layers"
    for path in (*stages.first, *stages.last):
        if path.startswith(f"{stages.layers}."):
            yield f"{path} is a decoder layer, so it cannot belong to one end alone"


def claims(plan: Plan) -> Iterator[str]:
    """Law 5: no module path is claimed twice, and no claim lies inside another."""
    owned = Counter(path for op in plan.ops for path in _claimed(op))
    yield from (f"{path} is claimed {count} times" for path, count in owned.items() if count > 1)
    for path in owned:
        for outer in paths.outer(path):
            if outer in owned:
                yield f"{path} is claimed inside {outer}, which is claimed as a whole"


def promises(plan: Plan) -> Iterator[str]:
    """Law 6: an emitted forward touches only names that the ops at its paths promise to provide."""
    methods = Counter((path, forward.method) for forward in plan.forwards for path in forward.paths)
    yield from (f"{path} gets {count} {name}s, expected one" for (path, name), count in methods.items() if count > 1)
    rewritten = {path for path, name in methods if name == "forward"}
    provided: dict[str, set[str]] = {}
    removed: dict[str, set[str]] = {}
    for op in plan.ops:
        provided.setdefault(paths.parent(op.path), set()).update(_provides(op))
        if isinstance(op, Attention):
            provided.setdefault(op.path, set()).add("attn")
        if isinstance(op, Recurrence):
            provided.setdefault(op.path, set()).add(op.name)
        gone = set(op.parts) - {paths.last(op.path)} if isinstance(op, Stacked | Heads) else set(taken(op))
        removed.setdefault(paths.parent(op.path), set()).update(gone)
    if plan.stages:
        provided.setdefault(plan.stages.decoder, set()).add("hands_on")
    for forward in plan.forwards:
        for path in forward.paths:
            for name in sorted(set(forward.promised) - provided.get(path, set())):
                yield f"the forward {forward.name} needs `{name}` at {path} but no op provides it"
            for name in sorted(removed.get(path, ())):
                if re.search(rf"\bself\.{re.escape(name)}\b", forward.text):
                    yield f"the forward {forward.name} still reads `{name}` at {path} though an op took it over"
    for path in sorted(path for path, names in removed.items() if names and path not in rewritten):
        yield f"{path} lost {_listed(removed[path])} to an op, but no forward was rewritten there"


def proofs(plan: Plan, *, proven: bool = False) -> Iterator[str]:
    """Law 7: every fused op carries a proof, named as `claim` says, whose error keeps its bound."""
    if not plan.proofs and not proven:
        return
    known = {proof.claim for proof in plan.proofs}
    missing = dict.fromkeys(claim(op) for op in plan.ops if fused(op))
    yield from (f"{wanted} carries no proof" for wanted in missing if wanted not in known)
    for proof in plan.proofs:
        # Written so that an error which is no number breaks the law too.
        if not proof.error <= proof.bound:
            yield f"{proof.claim} is off by {proof.error:.1e}, more than {proof.bound:.1e}"


def _claimed(op: Op) -> set[str]:
    """What nobody else may claim: the op's module, the children it takes over, or the one name it sets."""
    match op:
        case Attention():
            return {f"{op.path}.attn"}
        case Local():
            return {f"{op.path}.{op.attribute}"}
        case Recurrence():
            return {f"{op.path}.{op.name}"}
        case History():
            return {f"{op.path}.forward"}
        case Stacked() | Heads():
            return {op.path} | {paths.joined(paths.parent(op.path), part) for part in op.parts}
        case Whole():
            return {op.path} | {paths.joined(paths.parent(op.path), name) for name in taken(op)}
    return {op.path}


def _provides(op: Op) -> set[str]:
    name = paths.last(op.path)
    if isinstance(op, Attention | Local | Recurrence | History):
        return set()
    sizes = {f"{name}_sizes"} if isinstance(op, Stacked | Heads) else set()
    return {name} | sizes | ({f"{name}_head_sizes"} if isinstance(op, Heads) else set())


def _splits(op: Op) -> bool:
    return isinstance(op, Column) or (isinstance(op, Stacked | Heads) and op.split)


def _of_ranks(op: Op) -> bool:
    joins = isinstance(op, Row | Local | Share) or (isinstance(op, Norm | Keep) and op.units > 0)
    joins = joins or (isinstance(op, Recurrence) and bool(op.segments))
    return joins or _splits(op) or (isinstance(op, Attention) and op.split)


def _scope(op: Op) -> str:
    """What is beside an op lies below this: the parent of its parent (its own parent at the top)."""
    return paths.parent(paths.parent(op.path)) or paths.parent(op.path)


def counts(op: Op) -> str:
    """What of an op ranks have to divide, in words."""
    match op:
        case Recurrence(segments=cut) | Share(segments=cut) | Column(segments=cut) | Stacked(segments=cut) if cut:
            return "blocks of " + ", ".join(f"{size} / {units}" for size, units in cut)
        case Column(units=units) | Norm(units=units) | Keep(units=units):
            return f"{units} units"
        case Row(inputs=inputs):
            return f"{inputs} inputs"
        case Experts(inner=inner):
            return f"experts {inner} wide"
        case Stacked(sizes=sizes):
            return "parts of " + ", ".join(str(size) for size in sizes)
        case Heads(heads=heads, kv_heads=keys) | Attention(heads=heads, kv_heads=keys):
            return f"{heads} heads, {keys} key heads"
        case Local(attribute=attribute, whole=whole):
            return f"{attribute} = {whole}"
    return "whole"


def _listed(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
