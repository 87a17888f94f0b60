"""Numbers by which masks of hand-written attention could change further away than any prompt that is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from hfspeed.graph.nodes import function_name
from hfspeed.graph.record import Recording
from hfspeed.pattern.replay import ancestors

MAKERS = {"tensor", "as_tensor", "asarray", "from_numpy", "frombuffer"}
FEW = 1 << 10
"""Elements of a tensor whose values are looked through; a larger one is a table."""


def afar(recording: Recording, tokens: int, seen: int, context: int) -> fx.Node | None:
    """The first node that takes a number between ``seen`` and ``context``, where masks and positions are made.

    A mask that is made by the same operations with no such number is, beyond ``seen`` tokens, what it is before. Tables
    with more rows than ``seen`` may hold anything further on.

    Args:
        recording: of a short prompt, before anything in it is exchanged.
        tokens: its length.
        seen: the length of the longest prompt whose masks are looked at.
        context: how long prompts may be.
    """
    every = (call for path, one in recording.calls.items() for call in (one, *recording.again.get(path, ())))
    for call in every:
        masks = _of_masks(call.graph, tokens)
        for node in call.graph.nodes:
            numbers = _numbers(node) if node in masks else _cuts(node, tokens)
            fixed = node in masks and _fixed(node, tokens, seen)
            if fixed or any(seen < abs(number) < context for number in numbers):
                return node  # type: ignore[no-any-return]
    return None


def _of_masks(graph: fx.Graph, tokens: int) -> set[fx.Node]:
    """Nodes that follow from tokens and positions alone: whole numbers, answers, and what masks are made of."""
    known = [node for node in graph.nodes if isinstance(_held(node), torch.Tensor)]
    squares = [node for node in known if tuple(_held(node).shape[-2:]) == (tokens, tokens)]
    found = {node for node in known if not _held(node).is_floating_point()}
    return found.union(*(ancestors(node, {}) for node in squares))


def _held(node: fx.Node) -> Any:
    return node.meta.get("shadow")


def _fixed(node: fx.Node, tokens: int, seen: int) -> bool:
    """Whether nobody sees what a tensor is made of: a table, or one of plain numbers, or by another library."""
    made = function_name(node) in MAKERS and not node.all_input_nodes
    shape = tuple(getattr(node.meta.get("value"), "shape", ()))
    if node.op == "get_attr" or node.target == "constant" or made:
        return tokens in shape or max(shape, default=0) > seen
    return False


def _numbers(node: fx.Node) -> Iterator[float]:
    if node.op in {"call_function", "call_method"}:
        yield from _plain((node.args, node.kwargs))
    held = _held(node)
    if node.op in {"get_attr", "placeholder"} and isinstance(held, torch.Tensor) and held.numel() <= FEW:
        yield from held.double().flatten().tolist()


def _cuts(node: fx.Node, tokens: int) -> Iterator[float]:
    """Numbers at which a value that is none of a mask is cut along its tokens."""
    if function_name(node) != "__getitem__":
        return
    shape = tuple(getattr(node.args[0].meta.get("value"), "shape", ()))  # type: ignore[union-attr]
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    if Ellipsis in index:
        at = index.index(Ellipsis)
        index = (*index[:at], *(slice(None),) * (len(shape) - len(index) + 1), *index[at + 1 :])
    for size, one in zip(shape, index, strict=False):
        if size == tokens and isinstance(one, slice):
            yield from _plain(one)


def _plain(value: Any) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _plain(one)
    elif isinstance(value, dict):
        yield from _plain(list(value.values()))
    elif isinstance(value, slice):
        yield from _plain((value.start, value.stop, value.step))
