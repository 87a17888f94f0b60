"""Which block holds a call, and where several calls may become one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.recovered import Recovered, is_elif

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ELSEWHERE = ("a lambda", "a comprehension")


def dominating_block(recovered: Recovered, nodes: Sequence[ast.AST]) -> tuple[list[ast.stmt], int]:
    """The innermost block that holds all ``nodes``, some perhaps in branches of it, and the index of the first of them.

    What has no effect may be moved in front of a branch, as long as one of the nodes runs whichever branch is taken:
    then it is computed there anyway, and what it reads exists.

    Raises:
        Refused: ``different-blocks``: a loop, a ``with`` or the like separates them, or all are in branches.
    """
    chains = [_outward(recovered, node) for node in nodes]
    for block, _, _ in chains[0]:
        held = [next((entry for entry in chain if entry[0] is block), None) for chain in chains]
        found = [entry for entry in held if entry is not None]
        if len(found) < len(nodes):
            continue
        if all(branched for _, _, branched in found):
            raise _refused(recovered, nodes[-1], "each of the calls is in a branch that another run may not take")
        index = min(i for i, stmt in enumerate(block) if any(stmt is entry[1] for entry in found))
        if is_elif(recovered, block[index]):
            raise _refused(recovered, nodes[0], "the call is in the test of an `elif`")
        return block, index
    first = recovered.statement_of(nodes[0])
    blocks = [entry[0] for entry in chains[0]]
    node = next(n for n, chain in zip(nodes, chains, strict=True) if not any(e[0] is b for e in chain for b in blocks))
    raise _refused(recovered, node, _apart(recovered, first, recovered.statement_of(node)))


def _outward(recovered: Recovered, node: ast.AST) -> list[tuple[list[ast.stmt], ast.stmt, bool]]:
    """Blocks around ``node``, their statement that holds it, and whether it is in a branch of that; out to a loop."""
    skipped = _skipped_in(recovered, node)
    if skipped in _ELSEWHERE:
        raise _refused(recovered, node, f"the call is in {skipped}, so may not run")
    stmt = recovered.statement_of(node)
    if isinstance(stmt, ast.While) and node is not stmt:
        raise _refused(recovered, node, "the call is in the test of a `while`, which runs each turn")
    found = [(recovered.block_of(stmt), stmt, skipped is not None)]
    while isinstance(parent := recovered.parent_of(stmt), ast.If):
        stmt = parent
        found.append((recovered.block_of(stmt), stmt, True))
    return found


def always(recovered: Recovered, node: ast.AST) -> bool:
    """Whether ``node`` is evaluated whenever its statement is reached, and a line can be put before that."""
    return _skipped_in(recovered, node) is None and not is_elif(recovered, recovered.statement_of(node))


def between(block: list[ast.stmt], first: int, node: ast.stmt) -> list[ast.stmt]:
    """The statements of ``block`` from index ``first`` up to but not including ``node``."""
    last = next(i for i, stmt in enumerate(block) if stmt is node)
    return block[first:last]


def _refused(recovered: Recovered, node: ast.AST, found: str) -> Refused:
    place = recovered.place(node)
    return Refused(Refusal("merge", Reason.DIFFERENT_BLOCKS, found, recovered.cls_name, place))


def _skipped_in(recovered: Recovered, node: ast.AST) -> str | None:
    """The kind of expression around ``node`` that may leave it out or run it several times."""
    child, parent = node, recovered.parent_of(node)
    while not isinstance(child, ast.stmt) and parent is not None:
        if isinstance(parent, ast.IfExp) and child is not parent.test:
            return "one arm of `... if ... else ...`"
        if isinstance(parent, ast.BoolOp) and child is not parent.values[0]:
            return "the right side of `and` or `or`"
        if isinstance(parent, ast.Compare) and any(child is c for c in parent.comparators[1:]):
            return "the right side of a chained comparison"
        if isinstance(parent, ast.Lambda):
            return _ELSEWHERE[0]
        if isinstance(parent, _COMPREHENSIONS):
            return _ELSEWHERE[1]
        child, parent = parent, recovered.parent_of(parent)
    return None


def _apart(recovered: Recovered, first: ast.stmt, second: ast.stmt) -> str:
    outer, inner = _ancestors(recovered, first), _ancestors(recovered, second)
    only = [s for s in outer if s not in inner] + [s for s in inner if s not in outer]
    kinds = {
        ast.If: "an `if`", ast.For: "a loop", ast.While: "a loop", ast.With: "a `with`",
        ast.Try: "a `try`", ast.FunctionDef: "a nested function", ast.Match: "a `match`",
    }  # fmt: skip
    told = kinds.get(type(only[0]), "another block") if only else "another branch of one statement"
    return f"the calls are not in one block: {told} separates them"


def _ancestors(recovered: Recovered, stmt: ast.stmt) -> list[ast.AST]:
    found: list[ast.AST] = []
    parent = recovered.parent_of(stmt)
    while parent is not None:
        if isinstance(parent, ast.stmt):
            found.append(parent)
        parent = recovered.parent_of(parent)
    return found
