"""Which rows of projections, parameters and states each block of a module's result depends on, by gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.func import functional_call

from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import is_linear, module_of, value_of
from hfspeed.graph.record import Call
from hfspeed.graph.stateful import is_stateful, kernel_at, parameters_of
from hfspeed.graph.tensors import tensors
from hfspeed.plan.segments import Segment

Source = fx.Node | str
"""A projection, a gathered child or a stateful call (its state); or the path of a parameter or buffer."""
SAMPLES = 2
"""Runs on other numbers: a gradient may vanish by chance, as behind a clamp, but not in all of them."""


class Unknown(Exception):  # noqa: N818  it is what was found, not what failed
    """A value that is read has no value on meta."""


@dataclass
class Needs:
    """Source -> whether each block of the result depends on each element: ``[blocks, *shape]`` of bools."""

    seen: dict[Source, torch.Tensor]

    def merged(self, count: int) -> Needs:
        """The same for fewer, larger blocks."""
        return Needs({s: mask.view(count, -1, *mask.shape[1:]).any(1) for s, mask in self.seen.items()})

    def names(self) -> list[str]:
        """Parameters and buffers."""
        return [source for source in self.seen if isinstance(source, str)]

    def segments(self, source: Source, dim: int) -> tuple[Segment, ...] | None:
        """How the elements along ``dim`` belong to blocks; ``None`` if not segment by segment."""
        mask = self.seen[source]
        dim = dim if dim >= 0 else mask.ndim - 1 + dim
        others = [at + 1 for at in range(mask.ndim - 1) if at != dim]
        return parsed(mask.any(others) if others else mask)

    def dim_of(self, name: str) -> int | None:
        """The dimension in which a tensor is split; -1 where all of it is needed everywhere; ``None``: neither."""
        mask = self.seen[name]
        if not bool(mask.any()):
            return -1
        found = [self.segments(name, dim) for dim in range(mask.ndim - 1)]
        split = [dim for dim, one in enumerate(found) if one is not None and any(count > 1 for _, count in one)]
        if split:
            return split[0]
        return -1 if all(one is not None for one in found) else None

    @staticmethod
    def blocks_kept(node: fx.Node, finest: int, twin: nn.Module) -> int:
        """How many blocks of its last dimension a child keeps apart: 1 if it mixes all of them."""
        try:
            found = _child(node, finest, twin)
        except (Unknown, RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            return 1
        for count in (one for one in range(finest, 1, -1) if finest % one == 0):
            merged = found.merged(count)
            wanted = ((int(value_of(node).shape[-1]), count),)
            if all(merged.segments(source, -1) in {wanted, None} for source in merged.seen) and any(
                merged.segments(source, -1) == wanted for source in merged.seen
            ):
                return count
        return 1


def parsed(mask: torch.Tensor) -> tuple[Segment, ...] | None:
    """``[blocks, rows]`` as segments: rows that all blocks need, and rows in equal parts for equal runs of blocks."""
    blocks, length = mask.shape
    columns = [tuple(column) for column in mask.t().tolist()]
    found: list[Segment] = []
    at = 0
    while at < length:
        first, size = columns[at], 0
        while at + size < length and columns[at + size] == first:
            size += 1
        each = sum(first)
        if not each or blocks % each:
            return None
        parts = blocks // each
        for part in range(parts):
            wanted = tuple(part * each <= block < (part + 1) * each for block in range(blocks))
            here = columns[at + part * size : at + (part + 1) * size]
            if len(here) < size or any(one != wanted for one in here):
                return None
        found.append((parts * size, parts))
        at += parts * size
    return tuple(found)


def blocks_of(node: fx.Node) -> int:
    """The first dimension of the state of a stateful call: heads, or channels."""
    kernel = kernel_at(node)
    assert kernel is not None
    args, keywords = (fx.node.map_arg(part, value_of) for part in (node.args, node.kwargs))
    module = module_of(node)
    if module is not None:
        return int(value_of(node).shape[1])
    return kernel.state(kernel.bind(parameters_of(node.target), args, keywords).operands)[0]  # type: ignore[arg-type]


def needs(
    call: Call,
    columns: Collection[fx.Node],
    ends: Collection[fx.Node],
    whole: Collection[fx.Node],
    finest: int,
    twin: nn.Module,
) -> Needs:
    """What each of ``finest`` blocks of all that ``ends`` and ``whole`` read depends on."""
    found: dict[Source, torch.Tensor] = {}
    for seed in range(SAMPLES):
        run = _Run(twin, seed, {*columns, *whole})
        wanted = [node.all_input_nodes[0] for node in ends]
        wanted += [one for node in whole for one in node.all_input_nodes if _as_wide(one, node)]
        with Exact(), torch.device("cpu"):
            values = run.all(call.graph, wanted)
        for source, mask in _depend(values, run.leaves, finest).items():
            found[source] = found[source] | mask if source in found else mask
    return Needs(found)


def _as_wide(value: fx.Node, node: fx.Node) -> bool:
    given, made = value_of(value), value_of(node)
    return isinstance(given, torch.Tensor) and given.ndim > 0 and given.shape[-1] == made.shape[-1]


def _child(node: fx.Node, finest: int, twin: nn.Module) -> Needs:
    found: dict[Source, torch.Tensor] = {}
    for seed in range(SAMPLES):
        inputs = [one for one in node.all_input_nodes if isinstance(value_of(one), torch.Tensor)]
        run = _Run(twin, seed, set(inputs))
        with Exact(), torch.device("cpu"):
            (value,) = run.all(node.graph, [node])
        masks = {s: m for s, m in _depend([value], run.leaves, finest).items() if isinstance(s, fx.Node)}
        for source, mask in masks.items():
            found[source] = found[source] | mask if source in found else mask
    return Needs(found)


def _depend(
    values: Iterable[torch.Tensor], leaves: Mapping[Source, torch.Tensor], finest: int
) -> dict[Source, torch.Tensor]:
    """Source -> which blocks have a gradient, element by element."""
    names = list(leaves)
    masks = {name: torch.zeros(finest, *leaves[name].shape, dtype=torch.bool) for name in names}
    values = [value.reshape(*value.shape[:-1], finest, -1) for value in values]
    weights = [torch.rand_like(value) + 0.5 for value in values]
    for block in range(finest):
        total = sum(((v * w)[..., block, :].sum() for v, w in zip(values, weights, strict=True)), torch.zeros(()))
        grads = torch.autograd.grad(total, [leaves[n] for n in names], retain_graph=True, allow_unused=True)
        for name, grad in zip(names, grads, strict=True):
            if grad is not None:
                masks[name][block] = grad != 0
    return masks


class _Run:
    """A graph run on random numbers, cut at ``leaves``; parameters, buffers and states are leaves as well."""

    def __init__(self, twin: nn.Module, seed: int, cut: set[fx.Node]) -> None:
        self.twin, self.cut = twin, cut
        self.source = torch.Generator().manual_seed(seed)
        self.leaves: dict[Source, torch.Tensor] = {}
        self.known: dict[fx.Node, Any] = {}

    def all(self, graph: fx.Graph, wanted: list[fx.Node]) -> list[torch.Tensor]:
        """The values of ``wanted``."""
        needed, todo = set(wanted), list(wanted)
        while todo:
            at = todo.pop()
            fresh = [] if at in self.cut or is_linear(at) else [one for one in at.all_input_nodes if one not in needed]
            needed |= set(fresh)
            todo += fresh
        for node in graph.nodes:
            if node in needed:
                self.known[node] = self._value(node)
        return [self.known[node] for node in wanted]

    def _value(self, node: fx.Node) -> Any:
        if node in self.cut:
            return self._leaf(node, self._random(value_of(node)))
        if is_linear(node):
            return self._random(value_of(node))
        if node.op == "get_attr":
            return self._held(str(node.target), value_of(node))
        if node.op == "placeholder":
            return self._given(node)
        args = fx.node.map_arg(node.args, lambda one: self.known[one])
        keywords = fx.node.map_arg(node.kwargs, lambda one: self.known[one])
        if is_stateful(node):
            return self._stateful(node, args, keywords)
        if node.op == "call_module":
            module = self.twin.get_submodule(str(node.target))
            own = {name: self._held(f"{node.target}.{name}", one) for name, one in _tensors_of(module)}
            return functional_call(module, own, args, keywords)
        if "device" in keywords:
            keywords = {**keywords, "device": torch.device("cpu")}
        target: Any = node.target
        return target(*args, **keywords)

    def _stateful(self, node: fx.Node, args: Any, keywords: Any) -> Any:
        kernel, module = kernel_at(node), module_of(node)
        assert kernel is not None
        if module is None:
            bound = kernel.bind(parameters_of(node.target), args, keywords)  # type: ignore[arg-type]
        else:
            own = {name: self._held(f"{node.target}.{name}", one) for name, one in _tensors_of(module)}
            given = (args[0], own["weight"].squeeze(1), own.get("bias")) if own else args
            bound = kernel.bind(("x", "weight", "bias")[: len(given)], given, {})
        like = kernel.like(bound.operands)
        state = self._leaf(node, torch.zeros(like.shape[0], *kernel.state(bound.operands), dtype=torch.float64))
        out = kernel.run(bound.operands, bound.settings, state)[0].contiguous()
        return (out, None) if bound.pair else out

    def _held(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return _real(value, None, name)
        return self.leaves[name] + 0 if name in self.leaves else self._leaf(name, self._random(value))

    def _given(self, node: fx.Node) -> Any:
        value = value_of(node)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return self._random(value)
        if not any(True for _ in tensors(value)):
            return value
        return _real(value, node.meta.get("shadow"), str(node))

    def _leaf(self, source: Source, value: torch.Tensor) -> torch.Tensor:
        self.leaves[source] = value.requires_grad_()
        return self.leaves[source] + 0  # so that what writes in place has something to write to

    def _random(self, value: torch.Tensor) -> torch.Tensor:
        return torch.randn(value.shape, generator=self.source, dtype=torch.float64) * 0.5


def _tensors_of(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _real(value: Any, shadow: Any, name: str) -> torch.Tensor:
    found = shadow if shadow is not None else value
    if not isinstance(found, torch.Tensor) or found.is_meta:
        raise Unknown(f"`{name}` has no value")
    return found
