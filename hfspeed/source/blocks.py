"""Which block holds a call, and where several calls may become one."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.recovered import Recovered, is_elif

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def innermost_common_block(recovered: Recovered, nodes: Sequence[ast.AST]) -> tuple[list[ast.stmt], int]:
    """The block that holds all ``nodes`` directly, and the index of the first of their statements.

    Direct means that reaching one means reaching all: a node inside a branch, a loop, a ``with``, a
    ``try`` or a nested function of that block, or in part of an expression that may be skipped, would
    run more or less often, or under other conditions, if it were moved to the first.

    Raises:
        Refused: ``different-blocks``, blaming the node that does not belong.
    """
    for node in nodes:
        skipped = _skipped_in(recovered, node)
        if skipped:
            raise _refused(recovered, node, f"the call is in {skipped}, so may not run")
    statements = [recovered.statement_of(node) for node in nodes]
    first, *others = statements
    block = recovered.block_of(first)
    for stmt, node in zip(others, nodes[1:], strict=True):
        if recovered.block_of(stmt) is not block:
            raise _refused(recovered, node, _apart(recovered, first, stmt))
    indices = [i for i, stmt in enumerate(block) if any(stmt is other for other in statements)]
    for node, stmt in zip(nodes, statements, strict=True):
        if isinstance(stmt, ast.While) and node is not stmt:
            raise _refused(recovered, node, "the call is in the test of a `while`, which runs each turn")
        if is_elif(recovered, stmt):
            raise _refused(recovered, node, "the call is in the test of an `elif`")
    return block, min(indices)


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
            return "a lambda"
        if isinstance(parent, _COMPREHENSIONS):
            return "a comprehension"
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
