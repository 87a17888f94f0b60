"""The first rows of something fixed, as many as there are tokens: they become the rows of the tokens' positions."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import Any, Final

import torch
from torch import fx

from hfspeed.graph.nodes import function_name
from hfspeed.graph.positions import Span
from hfspeed.graph.record import Call
from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import recovered_of
from hfspeed.recurrences.history import HANDED_DOWN
from hfspeed.refusal import Refused
from hfspeed.source import Recovered

NAME: Final = HANDED_DOWN
"""The parameter that is handed down from the base model to where positions were counted."""


def first_rows(call: Call, tokens: int, tables: Collection[str]) -> Iterator[Change]:
    """Changes of a forward that let it look rows up.

    Args:
        call: one call of the module.
        tokens: how many tokens the prompt had.
        tables: paths of modules that give as many rows as they are asked for, and will give all.
    """
    try:
        recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
    except Refused:
        return
    for node in call.graph.nodes:
        expression = expression_of(recovered, node)
        if expression is None:
            yield from _handed(call, recovered, node, tokens)
            continue
        if node.op == "call_module" and node.target in tables:
            if text := _looked_up(recovered.segment(expression), node.meta["value"], tokens):
                yield Change("replace", expression, text)
        elif isinstance(expression, ast.Subscript) and (at := _cut_at(node, tokens)) is not None:
            source = recovered.segment(expression.value)
            yield Change("replace", expression, f"{source}.index_select({at}, {NAME}[0])")


def _handed(call: Call, recovered: Recovered, table: fx.Node, tokens: int) -> Iterator[Change]:
    """A table that a function is handed, and that it cuts at the number of tokens: it gets the rows of positions."""
    cuts = [(node, at) for node in table.users if (at := _cut_at(node, tokens)) is not None]
    spans = {node.meta.get("span") for node in table.users}
    if table.op != "get_attr" or len(cuts) != len(table.users) or len({at for _, at in cuts}) != 1:
        return
    wanted = f"{recovered.self_name}.{str(table.target).removeprefix(f'{call.path}.')}"
    for span in spans:
        if not isinstance(span, Span) or span.direct or span.file != recovered.file:
            return
        found = recovered.node_at(span.line, span.end_line, span.column, span.end_column)
        given = [*found.args, *(one.value for one in found.keywords)] if isinstance(found, ast.Call) else []
        for one in given:
            if recovered.segment(one) == wanted:
                yield Change("replace", one, f"{wanted}.index_select({cuts[0][1]}, {NAME}[0])")


def _looked_up(text: str, value: Any, tokens: int) -> str:
    """What a call gives, by position; empty if its parts have their rows in different places."""
    parts = value if isinstance(value, (tuple, list)) else (value,)
    at = {list(part.shape).index(tokens) for part in parts}
    if len(at) > 1:
        return ""
    rows = f".index_select({at.pop()}, {NAME}[0])"
    if isinstance(value, torch.Tensor):
        return text + rows
    each = f"one{rows} for one in {text}"
    return f"[{each}]" if isinstance(value, list) else f"tuple({each})"


def _cut_at(node: fx.Node, tokens: int) -> int | None:
    """The one dimension of something fixed that is cut, at the number of tokens, with more behind it."""
    if function_name(node) not in {"__getitem__", "getitem"} or len(node.args) != 2:
        return None
    source, index = node.args
    if not isinstance(source, fx.Node) or not (source.op == "get_attr" or _kept(source)):
        return None
    parts = list(index) if isinstance(index, tuple) else [index]
    if parts.count(...) == 1:
        at, rest = parts.index(...), source.meta["value"].ndim - len(parts) + 1
        parts[at : at + 1] = [slice(None)] * rest
    slices = [one for one in parts if isinstance(one, slice)]
    if len(slices) != len(parts):
        return None
    cut = [number for number, one in enumerate(slices) if one != slice(None)]
    whole, part = source.meta["value"].shape, node.meta["value"].shape
    if len(cut) != 1 or slices[cut[0]].start not in (None, 0) or slices[cut[0]].step not in (None, 1):
        return None
    return cut[0] if part[cut[0]] == tokens < whole[cut[0]] else None


def _kept(node: fx.Node) -> bool:
    """Whether it is a tensor that nobody made in this call: a table that is neither a buffer nor a parameter."""
    return node.op == "placeholder" and node.target == "constant"


def expression_of(recovered: Recovered, node: fx.Node) -> ast.expr | None:
    """The expression of a forward that gave ``node``, itself or by a function that gives it back."""
    span = node.meta.get("span")
    if not isinstance(span, Span) or span.file != recovered.file or not (span.direct or _given_back(node, span)):
        return None
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column)
    return found if isinstance(found, ast.expr) else None


def _given_back(node: fx.Node, span: Span) -> bool:
    """Whether ``node`` is the one value that a function called by the forward, at ``span``, gives back."""
    inside = [n for n in node.graph.nodes if n.meta.get("span") == span]
    return [n for n in inside if any(user.meta.get("span") != span for user in n.users)] == [node]
