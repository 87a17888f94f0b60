"""Where every tensor of the author's state dict goes under a list of ops."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

import torch
from torch import nn

from hfspeed.graph.linear import shape_of
from hfspeed.plan import Experts, Heads, Norm, Op, Positions, Stacked, Tie, Weight, Whole
from hfspeed.plan.filling import LINEAR
from hfspeed.plan.linears import taken


def destinations(model: nn.Module, ops: Iterable[Op]) -> tuple[tuple[Weight, ...], tuple[Tie, ...]]:
    """Weights and ties; the first name of a shared tensor is the one that is loaded."""
    ops = tuple(ops)
    parts: dict[str, tuple[str, int | None]] = {}
    norms, linears = set(), set()
    bare = {name: weight for op in ops for name, weight in _bare(op).items()}
    lists = [op.path for op in ops if isinstance(op, Experts) and op.apart]
    for op in ops:
        if isinstance(op, LINEAR):
            linears.add(op.path)
        if isinstance(op, Norm):
            norms.add(op.path)
        if isinstance(op, (Heads, Stacked)):
            outer = op.path.rpartition(".")[0]
            for index, part in enumerate(op.parts):
                source = f"{outer}.{part}" if outer else part
                parts[source] = (op.path, index if len(op.parts) > 1 else None)
    first: dict[int, str] = {}
    weights, ties = [], []
    for name, tensor in _state(model, {op.path for op in ops if isinstance(op, Positions)}):
        shared = first.setdefault(id(tensor), name)
        if name in bare:
            weights.append(replace(bare[name], shared=shared if shared != name else ""))
            continue
        if listed := _listed(name, lists):
            if shared != name:
                ties.append(Tie(name, shared))
            else:
                weights.append(Weight(name, *listed))
            continue
        module, _, leaf = name.rpartition(".")
        path, number = parts.get(module, (module, None))
        if shared != name and module not in parts and module not in norms:
            ties.append(Tie(name, shared))
            continue
        turned = path in linears and leaf == "weight" and _turned(model.get_submodule(module))
        if module in norms:
            leaf = "weight"  # its only parameter, whatever the author calls it
        also = shared if shared != name else ""
        weights.append(Weight(name, f"{path}.{leaf}" if path else leaf, number, turned, also))
    return tuple(weights), tuple(ties)


def _bare(op: Op) -> dict[str, Weight]:
    """Parameters of a module that became a linear beside them."""
    outer = op.path.rpartition(".")[0]
    held = zip(taken(op), ("weight", "bias"), strict=False)
    found = {f"{outer}.{name}" if outer else name: f"{op.path}.{leaf}" for name, leaf in held}
    turned = isinstance(op, Whole) and op.turned
    return {name: Weight(name, target, None, turned and target.endswith(".weight")) for name, target in found.items()}


def _listed(name: str, lists: list[str]) -> tuple[str, int] | None:
    """Where a tensor of one expert of a list goes: the same name without the number, and the number."""
    for path in lists:
        if name.startswith(f"{path}."):
            number, _, rest = name[len(path) + 1 :].partition(".")
            return f"{path}.{rest}", int(number)
    return None


def _turned(module: nn.Module) -> bool:
    shape = shape_of(module)
    return shape is not None and shape.transposed


def _state(model: nn.Module, tables: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and persistent buffers, shared ones under each of their names; tables read none that is loaded."""
    yield from model.named_parameters(remove_duplicate=False)
    for path, module in model.named_modules(remove_duplicate=False):
        if path in tables:
            continue
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{path}.{name}" if path else name, buffer
