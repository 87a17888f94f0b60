"""Checks that a row is no longer than something: of several sequences it may be, so the limit becomes one of each."""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Iterator
from typing import Any

from torch import nn

from hfspeed.pattern.edit import Change
from hfspeed.source import Recovered
from hfspeed.source.recovered import is_elif

_AT_MOST = {ast.LtE: 0, ast.Lt: -1}
_MORE = {ast.Gt: 0, ast.GtE: -1}
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.LtE: ast.GtE, ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv}


def row_checks(recovered: Recovered, module: nn.Module) -> Iterator[tuple[Change, int]]:
    """Statements of a forward that only complain of a long row, taken away, and how many tokens they allow.

    Args:
        recovered: the forward.
        module: whose numbers say how long a row may be.
    """
    counts = _counts(recovered.tree)
    for stmt in ast.walk(recovered.tree):
        test: ast.expr | None = None
        if isinstance(stmt, ast.Assert):
            test, known = stmt.test, _AT_MOST
        elif isinstance(stmt, ast.If) and not stmt.orelse and all(isinstance(one, ast.Raise) for one in stmt.body):
            test, known = stmt.test, _MORE
        if not isinstance(stmt, ast.stmt) or not isinstance(test, ast.Compare) or len(test.ops) != 1:
            continue
        left, kind, right = test.left, type(test.ops[0]), test.comparators[0]
        if not _is_count(left, counts):
            left, kind, right = right, _TURNED.get(kind, kind), left
        if kind in known and _is_count(left, counts) and not is_elif(recovered, stmt):
            most = _number(recovered, right, module)
            if most is not None:
                yield Change("erase", stmt), most + known[kind]


def _counts(tree: ast.FunctionDef) -> set[str]:
    """Names of the number of tokens: the second size of something."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Tuple) and len(target.elts) > 1 and _is_shape(value):
            second = target.elts[1]
            found |= {second.id} if isinstance(second, ast.Name) else set()
        elif isinstance(target, ast.Name) and _is_count(value, set()):
            found.add(target.id)
    return found


def _is_shape(node: ast.expr) -> bool:
    """``x.shape``, ``x.size()``, or the first sizes of it."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return node.slice.lower is None and _is_shape(node.value)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args
    return isinstance(node, ast.Attribute) and node.attr == "shape"


def _is_count(node: ast.expr, names: set[str]) -> bool:
    """The number of tokens, by name, ``x.shape[1]`` or ``x.size(1)``."""
    if isinstance(node, ast.Name):
        return node.id in names
    at = None
    if isinstance(node, ast.Subscript) and _is_shape(node.value):
        at = node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        at = node.args[0] if len(node.args) == 1 else None
    return isinstance(at, ast.Constant) and at.value == 1


def _number(recovered: Recovered, node: ast.expr, module: nn.Module) -> int | None:
    """What an expression of the module's own numbers gives; names that are bound once are looked through."""
    known: dict[str, Any] = dict(vars(sys.modules.get(recovered.module, ast)))
    known[recovered.self_name] = module
    bound: dict[str, list[ast.expr]] = {}
    for stmt in ast.walk(recovered.tree):
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name):
            bound.setdefault(stmt.targets[0].id, []).append(stmt.value)
    try:
        for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & bound.keys():
            if len(bound[name]) != 1:
                return None
            known[name] = _value(bound[name][0], known)
        found = _value(node, known)
    except (AttributeError, NameError, TypeError, LookupError, ValueError, ArithmeticError):
        return None
    return found if type(found) is int else None


def _value(node: ast.expr, known: dict[str, Any]) -> Any:
    """What names, attributes and plain arithmetic give."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.Attribute(value=inner, attr=name):
            return getattr(_value(inner, known), name)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, known) else orelse, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_value(left, known), _value(right, known))
    raise ValueError(f"{ast.unparse(node)} may do more than give a number")
