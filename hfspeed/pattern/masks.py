"""Masks that nothing reads any more, since attention is no longer computed by hand: they are not made either."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from hfspeed.graph.positions import Span
from hfspeed.graph.record import Call, Recording
from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import recovered_of
from hfspeed.refusal import Refused
from hfspeed.source import Recovered

NOTE = "masks are not made"


def unread_masks(recording: Recording, call: Call, tokens: int) -> list[Change]:
    """Changes that assign ``None`` where ``call`` makes masks of the size ``tokens`` squared that nothing reads.

    A mask that decides what is run, or that a callee insists on, is not seen here; running the result shows it.

    Args:
        recording: in which attention stands as calls of the interface.
        call: one module's call in it.
        tokens: the length of the recorded prompt.
    """
    if not any(_square(node, tokens) for node in call.graph.nodes):
        return []
    try:
        recovered = recovered_of(call.cls, "forward")  # type: ignore[arg-type]  # mypy takes no class for hashable
    except Refused:
        return []
    changes = []
    for stmt in ast.walk(recovered.tree):
        if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        made = [node for node in call.graph.nodes if _stands_in(recovered, node, stmt.value)]
        pure = all(node.op == "call_function" for node in made)
        if pure and any(_square(n, tokens) for n in made) and all(_unread(recording, n, set(made)) for n in made):
            changes.append(Change("replace", stmt.value, "None"))
    return changes


def shed(recording: Recording) -> None:
    """Take from every graph what is computed for nothing, so that nobody takes it for a part of the model."""
    idle = {
        node
        for call in recording.calls.values()
        for node in call.graph.nodes
        if node.op in {"call_function", "placeholder"} and _unread(recording, node, set())
    }
    for call in recording.calls.values():
        for node in reversed(list(call.graph.nodes)):
            if node.op == "call_module":
                node.args = fx.node.map_arg(node.args, lambda n: None if n in idle else n)
                node.kwargs = fx.node.map_arg(node.kwargs, lambda n: None if n in idle else n)
            elif node in idle and node.op == "call_function" and not node.users:
                call.graph.erase_node(node)


def _square(node: fx.Node, tokens: int) -> bool:
    value = node.meta.get("value")
    large = isinstance(value, torch.Tensor) and value.ndim >= 2 and tuple(value.shape[-2:]) == (tokens, tokens)
    return large and node.op == "call_function"


def _stands_in(recovered: Recovered, node: fx.Node, value: ast.expr) -> bool:
    """Whether the node was computed while ``value`` was evaluated."""
    span = node.meta.get("span")
    if not isinstance(span, Span) or span.file != recovered.file:
        return False
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column)
    return found is not None and any(inner is found for inner in ast.walk(value))


def _unread(recording: Recording, node: fx.Node, among: set[fx.Node]) -> bool:
    """Whether nothing comes of the node, ``among`` and other values of which nothing comes aside."""
    return all(user in among or _idle(recording, node, user) for user in node.users)


def _idle(recording: Recording, node: fx.Node, user: fx.Node) -> bool:
    if user.op == "call_function":
        return _unread(recording, user, set())
    if user.op != "call_module" or str(user.target) in recording.again:
        return False
    inner = recording.calls.get(recording.same(str(user.target)))
    if inner is None:
        return False
    given = [entry for key in _slots(user, node) for entry in _arguments(inner, key)]
    return all(_unread(recording, entry, set()) for entry in given)


def _slots(user: fx.Node, node: fx.Node) -> Iterator[int | str]:
    """Which arguments of a call hold ``node``."""
    given: list[tuple[int | str, Any]] = [*enumerate(user.args), *user.kwargs.items()]
    for key, value in given:
        held: list[fx.Node] = []
        fx.node.map_arg(value, held.append)
        if node in held:
            yield key


def _arguments(call: Call, key: int | str) -> Iterator[fx.Node]:
    for node in call.graph.nodes:
        if node.op == "placeholder" and node.meta.get("argument") == key:
            yield node
