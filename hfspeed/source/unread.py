"""Whether an assignment becomes pointless once expressions behind it no longer read what it binds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hfspeed.source.effects import bound
from hfspeed.source.recovered import Recovered

_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)


def unread(recovered: Recovered, stmt: ast.stmt, *gone: ast.AST) -> bool:
    """True if ``stmt`` only binds plain names that nothing reads before they are bound anew, ``gone`` aside.

    Args:
        recovered: the method.
        stmt: an assignment.
        gone: expressions that are replaced by others which read none of the names, and statements that are deleted.
    """
    targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target] if isinstance(stmt, ast.AnnAssign) else []
    if len(targets) != 1:
        return False
    parts = list(ast.walk(targets[0]))
    if not all(isinstance(part, ast.Name | ast.Tuple | ast.expr_context) for part in parts):
        return False
    names = [part.id for part in parts if isinstance(part, ast.Name)]
    return not any(_read(recovered, stmt, name, gone) for name in names)


def _read(recovered: Recovered, stmt: ast.stmt, name: str, gone: Sequence[ast.AST]) -> bool:
    """Whether something that stays may read what ``stmt`` bound to ``name``."""
    uses = list(_uses(recovered.tree, name, (*gone, stmt)))
    if not any(_reads(recovered, use) for use in uses):
        return False
    held = (node for node in ast.walk(recovered.tree) if isinstance(node, _LATER) and node is not recovered.tree)
    if any(True for node in held for _ in _uses(node, name, gone)):
        return True  # run at another time than where it stands
    block = recovered.block_of(stmt)
    index = next(i for i, other in enumerate(block) if other is stmt)
    for later in block[index + 1 :]:
        here = list(_uses(later, name, gone))
        if any(_reads(recovered, use) for use in here):
            return True
        if here and isinstance(later, ast.Assign) and name in set(bound(later.targets)):
            return False  # bound anew, whatever came before
        if here:
            return True  # bound in some other way: perhaps only sometimes
    return block is not recovered.tree.body


def _reads(recovered: Recovered, use: ast.Name) -> bool:
    """``x += 1`` and ``del x`` need what was there."""
    return not isinstance(use.ctx, ast.Store) or isinstance(recovered.parent_of(use), ast.AugAssign)


def _uses(node: ast.AST, name: str, gone: Sequence[ast.AST]) -> Iterator[ast.Name]:
    """Mentions of ``name`` at or below ``node``, those inside ``gone`` left out."""
    if any(node is one for one in gone):
        return
    if isinstance(node, ast.Name) and node.id == name:
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _uses(child, name, gone)
