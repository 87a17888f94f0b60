"""Which branches of an `if` two places stand in."""

from __future__ import annotations

import ast

from hfspeed.source.recovered import Recovered


def apart(recovered: Recovered, one: ast.AST, other: ast.AST) -> bool:
    """Whether the two stand in different branches of one ``if``, so that a single pass runs at most one of them."""
    first, second = _arms(recovered, one), _arms(recovered, other)
    return any(first[stmt] != second[stmt] for stmt in first.keys() & second.keys())


def _arms(recovered: Recovered, node: ast.AST) -> dict[ast.If, str]:
    """Every ``if`` around ``node`` that no loop is inside of, with the branch that ``node`` is in."""
    found: dict[ast.If, str] = {}
    child, parent = node, recovered.parent_of(node)
    while parent is not None:
        if isinstance(parent, ast.For | ast.While):
            return {}
        if isinstance(parent, ast.If):
            arm = next((arm for arm in ("body", "orelse") if child in getattr(parent, arm)), None)
            found |= {parent: arm} if arm else {}
        child, parent = parent, recovered.parent_of(parent)
    return found
