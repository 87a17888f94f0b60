"""The nodes of a syntax tree in the order they are written, gathered once, since every rule walks the same trees."""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import dataclass, field

MARK = "_hfspeed"
PLAIN = frozenset({"arg", "attr", "ctx", "id", "kind", "level", "lineno", "module", "op", "ops", "type_comment"})
"""Fields without nodes, or with the contexts and operators of which the parser makes one object for all places."""
FIELDS = {
    kind: () if kind is ast.Constant else tuple(name for name in reversed(kind._fields) if name not in PLAIN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


@dataclass(frozen=True, eq=False)
class _Index:
    """Every node of one tree, parents first, and the calls among them with their positions in that order."""

    nodes: list[ast.AST] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


def gather(tree: ast.AST) -> None:
    """Mark every node of ``tree`` with the stretch of the order that it and all below it take up."""
    index = _Index()
    nodes = index.nodes
    waiting: list[ast.AST | None] = [tree]
    opened: list[tuple[ast.AST, int]] = []
    while waiting:
        node = waiting.pop()
        start = len(nodes)
        if node is None:  # all below the innermost open node has been seen
            node, start = opened.pop()
            node.__dict__[MARK] = (index, start, len(nodes))
            continue
        nodes.append(node)
        kind = type(node)
        if kind is ast.Call:
            index.calls.append(node)  # type: ignore[arg-type]
            index.starts.append(start)
        below = _below(node, FIELDS[kind])
        if below:
            opened.append((node, start))
            waiting.append(None)
            waiting += below
        else:
            node.__dict__[MARK] = (index, start, start + 1)


def walk(node: ast.AST) -> list[ast.AST]:
    """``node`` and all below it, as they are written."""
    found = node.__dict__.get(MARK)
    if found is None:
        return list(ast.walk(node))
    index, start, end = found
    return index.nodes[start:end]  # type: ignore[no-any-return]


def calls_in(node: ast.AST) -> list[ast.Call]:
    """Every call in ``node``, itself included, as they are written."""
    found = node.__dict__.get(MARK)
    if found is None:
        return [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    index, start, end = found
    return index.calls[bisect_left(index.starts, start) : bisect_left(index.starts, end)]  # type: ignore[no-any-return]


def _below(node: ast.AST, fields: tuple[str, ...]) -> list[ast.AST]:
    """The children, last first."""
    found: list[ast.AST] = []
    for name in fields:
        value = getattr(node, name, None)
        if type(value) is list:
            found += [one for one in reversed(value) if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found
