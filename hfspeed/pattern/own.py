"""What a block does with split values besides its projections: tensors it holds for each head, children that mix heads.

Where a tensor of its own meets split values, each rank needs its own part of it, along one dimension. Sizes say which
dimensions that may be; whether it is so is decided by running it on simulated ranks.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator
from itertools import islice, product

import torch
from torch import fx

from hfspeed.graph.nodes import is_attention, is_linear, module_of, value_of, width
from hfspeed.graph.tensors import tensors

TRIED = 6
"""Choices of what is split along which dimension that are worth a run."""
Ways = dict[str, dict[int, int]]
"""Path of a tensor -> dimension that may be split -> the units that stay together in it."""
Choice = tuple[tuple[str, int], ...]


def met(graph: fx.Graph, column: fx.Node, carriers: Collection[fx.Node], units: int) -> Ways:
    """Tensors of the module's own that meet what ``column`` gave, and how each may be split.

    Args:
        graph: of the block.
        column: a projection whose outputs are split.
        carriers: nodes that carry what it gave, up to the next projections.
        units: what stays together in its outputs.
    """
    heads = [int(value_of(arg).shape[1]) for node in carriers if is_attention(node) for arg in _tensors_of(node)]
    wide = width(column)
    found: Ways = {}
    for node in (one for one in graph.nodes if one.op == "get_attr"):
        value = value_of(node)
        if not isinstance(value, torch.Tensor) or not _meets(node, carriers):
            continue
        ways = {dim: math.gcd(size, units) for dim, size in enumerate(value.shape) if size in {wide, units, *heads}}
        if ways := {dim: parts for dim, parts in ways.items() if parts > 1}:
            found[str(node.target)] = ways
    return found


def add(ways: Ways, more: Ways) -> None:
    """Put ``more`` into ``ways``; what meets values of several projections, as behind attention, has the most units."""
    for name, dims in more.items():
        known = ways.setdefault(name, {})
        known |= {dim: max(units, known.get(dim, 0)) for dim, units in dims.items()}


def choices(ways: Ways, path: str) -> Iterator[Choice]:
    """What may be split along which dimension: everything first, then nothing, then whatever lies between.

    Names are as the module at ``path`` says them.
    """
    if not ways:
        yield ()
        return
    start = len(path) + 1 if path else 0
    options = [[(name[start:], dim) for dim in dims] + [None] for name, dims in ways.items()]
    every = [tuple(one for one in picks if one is not None) for picks in islice(product(*options), 4 * TRIED)]
    yield from dict.fromkeys(islice([every[0], (), *every[1:]], TRIED))


def mixes(node: fx.Node, wide: int) -> bool:
    """Whether a child without weights takes all of a split value together, as a norm does, and not element by element.

    It is run on numbers, of which half are then changed.
    """
    module = module_of(node)
    if module is None or any(True for _ in tensors([*module.parameters(), *module.buffers()])):
        return False
    given = [value_of(arg) for arg in node.args if isinstance(arg, fx.Node)]
    if len(given) != 1 or node.kwargs or given[0].shape[-1] != wide or wide < 2:
        return False
    made = node.meta.get("value")
    if not isinstance(made, torch.Tensor) or made.shape != given[0].shape:
        return False
    value = torch.randn(*given[0].shape[:-1], wide, generator=torch.Generator().manual_seed(0), device="cpu")
    other = value.clone()
    other[..., wide // 2 :] *= 3
    try:
        with torch.no_grad(), torch.device("cpu"):  # a copy, so that what the child counts is not touched
            one, two = (copy.deepcopy(module)(each)[..., : wide // 2] for each in (value, other))
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError):
        return False
    return not torch.equal(one, two)


def _tensors_of(node: fx.Node) -> Iterator[fx.Node]:
    yield from (arg for arg in node.args[1:4] if isinstance(arg, fx.Node))


def _meets(node: fx.Node, carriers: Collection[fx.Node]) -> bool:
    """Whether ``node`` reaches carriers, no projection between, other than as what an attention is told (its sinks)."""
    seen, todo = {node}, [node]
    while todo:
        at = todo.pop()
        for reader in at.users:
            if reader in carriers:
                if not is_attention(reader) or at in list(_tensors_of(reader)):
                    return True
            elif reader not in seen and not is_linear(reader) and reader.op != "output":
                seen.add(reader)
                todo.append(reader)
    return False
