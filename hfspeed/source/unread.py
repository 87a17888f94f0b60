"""Whether an assignment becomes pointless once an expression behind it no longer reads what it binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hfspeed.source.recovered import Recovered


def unread(recovered: Recovered, stmt: ast.stmt, gone: ast.expr) -> bool:
    """True if ``stmt`` only binds plain names that nothing reads before they are bound anew, ``gone`` aside.

    Args:
        recovered: the method.
        stmt: an assignment in the same block as ``gone``, before it.
        gone: the expression that is replaced by one which reads none of the names.
    """
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1:
        return False
    names = [node.id for node in ast.walk(stmt.targets[0]) if isinstance(node, ast.Name)]
    plain = isinstance(stmt.targets[0], (ast.Name, ast.Tuple))
    whole = all(isinstance(node, (ast.Name, ast.Tuple, ast.expr_context)) for node in ast.walk(stmt.targets[0]))
    return plain and whole and all(not _read(recovered, stmt, name, gone) for name in names)


def _read(recovered: Recovered, stmt: ast.stmt, name: str, gone: ast.expr) -> bool:
    block = recovered.block_of(stmt)
    index = next(i for i, other in enumerate(block) if other is stmt)
    for later in block[index + 1 :]:
        uses = list(_uses(later, name, gone))
        if any(isinstance(use.ctx, ast.Load) for use in uses):
            return True
        if uses and isinstance(later, ast.Assign):
            return False  # bound anew, whatever came before
        if uses:
            return True  # bound in some other way: perhaps only sometimes
    return block is not recovered.tree.body


def _uses(node: ast.AST, name: str, gone: ast.AST) -> Iterator[ast.Name]:
    """Mentions of ``name`` below ``node``, those inside ``gone`` left out."""
    if node is gone:
        return
    if isinstance(node, ast.Name) and node.id == name:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, name, gone)
