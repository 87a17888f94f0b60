"""Which rows of a linear stand where behind it: the code between is run on numbered values."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch.fx.node import map_arg

from hfspeed.graph.flow import behind
from hfspeed.graph.nodes import SPLITS, function_name, value_of

MOVES: Final = SPLITS | {
    "__get__", "__getitem__", "contiguous", "flatten", "getitem", "movedim", "moveaxis", "narrow", "permute", "ravel",
    "reshape", "select", "squeeze", "swapaxes", "swapdims", "transpose", "unbind", "unflatten", "unsqueeze", "view",
}  # fmt: skip
"""Functions and methods that only say where a number stands: no cast, no arithmetic, no write."""


HEADS: Final = ".unflatten(-1, (-1, {size}))"
"""Flat rows as heads. ``{size}`` stands for what is the size of one head at run time."""


def numbered(linear: fx.Node) -> dict[fx.Node, torch.Tensor]:
    """The values that only rearrange what ``linear`` gave, with ``token * width + row`` where each number stands."""
    shape = tuple(value_of(linear).shape)
    count = value_of(linear).numel()
    found: dict[fx.Node, Any] = {linear: torch.arange(count).reshape(shape)}
    with torch.no_grad(), torch._C.DisableTorchFunction():
        for node in linear.graph.nodes:
            inputs = node.all_input_nodes
            if node in found or not inputs or not all(one in found for one in inputs):
                continue
            if node.target is operator.getitem or (callable(node.target) and function_name(node) in MOVES):
                found[node] = _run(node, found)
    return {node: value for node, value in found.items() if isinstance(value, torch.Tensor)}


def _run(node: fx.Node, found: Mapping[fx.Node, Any]) -> Any:
    args = map_arg(node.args, lambda one: found[one])
    kwargs = map_arg(node.kwargs, lambda one: found[one])
    assert callable(node.target)
    return node.target(*args, **kwargs)


def cuts(linear: fx.Node, ends: Sequence[fx.Node], moved: Mapping[fx.Node, Any]) -> list[list[fx.Node]] | None:
    """For each of ``ends``, the rearranged values behind ``linear`` through which all of it comes, and nothing else.

    ``None`` if an end is made from several pieces, or from what other ends are made from too.
    """
    every = [behind(end) for end in ends]
    shared = {node for node in every[0].union(*every) if sum(node in one for one in every) > 1}
    found = []
    for end, own in zip(ends, every, strict=True):
        through = [n for n in moved if n in own - shared and linear not in behind(end, stop=n)]
        if not through:
            return None
        found.append(through)
    return found


def form(codes: torch.Tensor, lead: torch.Size, wide: int, size: int) -> tuple[list[int], str] | None:
    """The rows in the order in which ``codes`` holds them, and how to come from these rows, flat, to its shape.

    Args:
        codes: numbered values of one role, for every token.
        lead: the shape of the linear's result before its last dimension.
        wide: the linear's width.
        size: the size of one head, which is never cut.
    """
    tokens = lead.numel()
    if codes.numel() % tokens:
        return None
    for text, shape, swap in _shapes(codes, lead, size):
        flat = (codes.transpose(1, 2) if swap else codes).reshape(tokens, -1)
        again = (flat[0] + torch.arange(tokens)[:, None] * wide).reshape(*lead, *shape)
        if torch.equal(again.transpose(1, 2) if swap else again, codes):
            return [int(row) for row in flat[0]], text
    return None


def _shapes(codes: torch.Tensor, lead: torch.Size, size: int) -> list[tuple[str, list[int], bool]]:
    """Candidates: flat; heads behind the tokens; flat with a dimension more; heads before the tokens."""
    found: list[tuple[str, list[int], bool]] = []
    rest = list(codes.shape[len(lead) :])
    if codes.shape[: len(lead)] == lead and len(rest) == 1:
        found.append(("", rest, False))
    if codes.shape[: len(lead)] == lead and len(rest) == 2 and rest[-1] == size:
        found.append((HEADS, rest, False))
    if codes.ndim == 4 and len(lead) == 2 and codes.shape[1] == 1:
        found.append((".unsqueeze(1)", [1, codes.shape[-1]], True))
    if codes.ndim == 4 and len(lead) == 2 and codes.shape[-1] == size:
        found.append((f"{HEADS}.transpose(1, 2)", [codes.shape[1], size], True))
    return found
