"""Attention written out by hand, found in recorded dataflow: the softmax, and the two products around it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import fx, nn

from hfspeed.graph.nodes import function_name, module_of, value_of
from hfspeed.graph.record import Call
from hfspeed.pattern.replacement import place_of
from hfspeed.refusal import Reason, Refusal, Refused

PRODUCTS: Final = frozenset({"matmul", "__matmul__", "bmm", "baddbmm", "einsum"})
SINKS: Final = "where a column of the scores is a sink for each head, hand it to the attention interface as `s_aux`"
Key = int | str
"""Where an operand stands in a recorded call: which positional argument, or which keyword."""


@dataclass(frozen=True)
class Operand:
    """A tensor that goes into a product, where it stands in the call, and the order of its dimensions."""

    node: fx.Node
    at: Key
    layout: str


@dataclass(frozen=True)
class Written:
    """One attention computed by a module's own code.

    Attributes:
        call: the module's recorded call.
        query / key / value: what goes in.
        first: the product of query and key.
        softmax: what makes weights of scores.
        last: the product of weights and value; the three are one node where one function does it all.
        layout: the order of the dimensions that ``last`` gives.
    """

    call: Call
    query: Operand
    key: Operand
    value: Operand
    first: fx.Node
    softmax: fx.Node
    last: fx.Node
    layout: str


def written(call: Call, tokens: int) -> Written | None:
    """The one attention that ``call`` computes by hand; ``None`` if it does not look like any.

    Args:
        call: a recorded call.
        tokens: the length of the recorded prompt, which no size of the model equals.

    Raises:
        Refused: there are several, or the products around the softmax are none that could be read.
    """
    if isinstance(call.module, nn.Softmax):
        return None
    found = [node for node in call.graph.nodes if _weighs(node, tokens)]
    if len(found) > 1:
        told = "attention is computed more than once in one module"
        raise refused(call, Reason.CALLED_TWICE_INTERFACE, told, found[1])
    if not found:
        for odd in (node for node in call.graph.nodes if _overlong(node, tokens)):
            over = int(value_of(odd).shape[-1])
            told = f"attention is over {over} tokens where the prompt has {tokens}"
            raise refused(call, Reason.NO_INTERFACE, told, odd, SINKS if over == tokens + 1 else "")
        for odd in (node for node in call.graph.nodes if _otherwise(node, tokens)):
            told = "the scores are not laid out as heads, queries, keys"
            raise refused(call, Reason.NO_INTERFACE, told, odd, "make them [batch, heads, queries, keys]")
        return None
    softmax = found[0]
    if softmax.target is F.scaled_dot_product_attention:
        names = ("query", "key", "value")
        parts = [_given(softmax, at, name) for at, name in enumerate(names)]
        query, key, value = (Operand(node, at, _layout(node, "td")) for node, at in parts)
        return Written(call, query, key, value, softmax, softmax, softmax, _layout(softmax, "td"))
    first, last = list(_behind(softmax)), list(_ahead(softmax))
    if not first or not last:
        return None
    if len(first) > 1 or len(last) > 1:
        told = "the scores are made of more than one product of query and key"
        raise refused(call, Reason.NO_INTERFACE, told, softmax)
    (query, key), scores = _factors(call, first[0], "qd", "dk")
    (weights, value), layout = _factors(call, last[0], "qk", "kd")
    if not _reaches(softmax, weights.node) or _reaches(softmax, value.node):
        raise refused(call, Reason.NO_INTERFACE, "the weights are the second factor of a product", last[0])
    if scores[-2:] != "qk":
        raise refused(call, Reason.NO_INTERFACE, "queries are not the last but one dimension of the scores", first[0])
    return Written(call, query, key, value, first[0], softmax, last[0], layout.replace("q", "t"))


def operands(one: Written) -> tuple[fx.Node, fx.Node, fx.Node]:
    """The nodes of query, key and value."""
    return one.query.node, one.key.node, one.value.node


def refused(call: Call, reason: Reason, found: str, node: fx.Node | None = None, help: str = "") -> Refused:
    """No to attention in ``call``, at the line of ``node``."""
    return Refused(Refusal("attention", reason, found, call.path, place_of(call, node), 1, help))


def descends(node: fx.Node) -> set[fx.Node]:
    """``node`` and everything made from it."""
    found, todo = {node}, [node]
    while todo:
        for user in todo.pop().users:
            if user not in found:
                found.add(user)
                todo.append(user)
    return found


def _weighs(node: fx.Node, tokens: int) -> bool:
    if node.target is F.scaled_dot_product_attention:
        return True
    if not is_softmax(node):
        return False
    value = value_of(node)
    return isinstance(value, torch.Tensor) and value.ndim > 2 and tuple(value.shape[-2:]) == (tokens, tokens)


def is_softmax(node: fx.Node) -> bool:
    """Whether ``node`` makes weights of scores."""
    return function_name(node) == "softmax" or isinstance(module_of(node), nn.Softmax)


def _overlong(node: fx.Node, tokens: int) -> bool:
    shape = tuple(getattr(value_of(node), "shape", ())) if is_softmax(node) else ()
    return len(shape) > 2 and shape[-1] > tokens and shape[-2] in (tokens, shape[-1])


def _otherwise(node: fx.Node, tokens: int) -> bool:
    shape = tuple(getattr(value_of(node), "shape", ())) if is_softmax(node) else ()
    return len(shape) > 2 and shape[-1] == tokens != shape[-2] and tokens in shape[:-2]


def _product(node: fx.Node) -> bool:
    return function_name(node) in PRODUCTS


def _behind(node: fx.Node) -> Iterator[fx.Node]:
    """The nearest products from which ``node`` is made."""
    seen: set[fx.Node] = set()
    todo = list(node.all_input_nodes)
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if _product(at):
            yield at
        else:
            todo.extend(at.all_input_nodes)


def _ahead(node: fx.Node) -> Iterator[fx.Node]:
    """The nearest products made from ``node``."""
    seen: set[fx.Node] = set()
    todo = list(node.users)
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        if _product(at):
            yield at
        else:
            todo.extend(at.users)


def _reaches(start: fx.Node, end: fx.Node) -> bool:
    return end in descends(start)


def _given(node: fx.Node, at: int, name: str) -> tuple[fx.Node, Key]:
    found = node.args[at] if len(node.args) > at else node.kwargs[name]
    assert isinstance(found, fx.Node)
    return found, at if len(node.args) > at else name


def _layout(node: fx.Node, last: str) -> str:
    return ("bh" if value_of(node).ndim == 4 else "h") + last


def _factors(call: Call, node: fx.Node, one: str, other: str) -> tuple[tuple[Operand, Operand], str]:
    """Both factors of a product, and the order of its result; letters ``q`` ``k`` ``d`` as in ``one`` and ``other``."""
    if function_name(node) == "einsum":
        return _einsum(call, node, one, other)
    start = 1 if function_name(node) == "baddbmm" else 0
    names = ("batch1", "batch2") if start else ("other", "other") if function_name(node) == "matmul" else ("mat2",) * 2
    left, at = _given(node, start, names[0])
    right, there = _given(node, start + 1, names[1])
    for operand in (left, right):
        if value_of(operand).ndim not in (3, 4):
            raise refused(call, Reason.NO_INTERFACE, "query, key and value are no rows of heads", node)
    both = Operand(left, at, _named(_layout(left, one))), Operand(right, there, _named(_layout(right, other)))
    return both, ("bh" if value_of(node).ndim == 4 else "h") + one[0] + other[1]


def _named(layout: str) -> str:
    return layout if "q" in layout and "k" in layout else layout.replace("q", "t").replace("k", "t")


def _einsum(call: Call, node: fx.Node, one: str, other: str) -> tuple[tuple[Operand, Operand], str]:
    told = refused(call, Reason.NO_INTERFACE, "an einsum that is no product of heads", node)
    equation, *rest = node.args
    factors: list[Any] = list(rest[0]) if len(rest) == 1 and isinstance(rest[0], tuple) else rest
    if not isinstance(equation, str) or len(factors) != 2 or "." in equation or "->" not in equation:
        raise told
    inputs, _, output = equation.replace(" ", "").partition("->")
    left, _, right = inputs.partition(",")
    outer = [c for c in left if c in output and c not in right], [c for c in right if c in output and c not in left]
    summed, shared = (
        [c for c in left if c in right and c not in output],
        [c for c in output if c in left and c in right],
    )
    if len(outer[0]) != 1 or len(outer[1]) != 1 or len(summed) != 1 or len(shared) not in (1, 2):
        raise told
    names = dict(zip(shared, "bh" if len(shared) == 2 else "h", strict=True))
    common = next(iter(set(one) & set(other)))
    names |= {summed[0]: common, outer[0][0]: one.replace(common, ""), outer[1][0]: other.replace(common, "")}
    layouts = ["".join(names[c] for c in part) for part in (left, right, output)]
    ats: Iterator[Key] = itertools.count(1)
    both = [Operand(f, at, _named(layout)) for f, at, layout in zip(factors, ats, layouts, strict=False)]
    return (both[0], both[1]), layouts[2]
