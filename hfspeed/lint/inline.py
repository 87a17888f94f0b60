"""Puts what a one-line function returns in place of a call of it, with the arguments for its parameters."""

from __future__ import annotations

import ast

from hfspeed.lint.facts import Facts
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import source

SIMPLE = ast.Name | ast.Attribute | ast.Constant
PLAIN = ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript


def returned(function: ast.FunctionDef) -> ast.expr | None:
    """What a function returns that does nothing else and that nothing decorates."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return) or function.decorator_list:
        return None
    return body[0].value


def arguments(function: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments of ``call`` by the names of the parameters, if each is given once; ``self`` is left out."""
    taken = function.args
    if taken.vararg or taken.kwarg or taken.kwonlyargs or taken.posonlyargs:
        return None
    names = [one.arg for one in taken.args]
    names = names[1:] if names[:1] == ["self"] else names
    if any(isinstance(one, ast.Starred) for one in call.args) or len(call.args) > len(names):
        return None
    given = dict(zip(names, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in given:
            return None
        given[keyword.arg] = keyword.value
    return given if set(given) == set(names) else None


def inlined(facts: Facts, function: ast.FunctionDef, call: ast.Call, around: ast.FunctionDef) -> str | None:
    """The text that means what ``call`` does inside ``around``; ``None`` if that is not certain."""
    value, given = returned(function), arguments(function, call)
    if value is None or given is None or value.lineno != value.end_lineno:
        return None
    read = [node for node in walk(value) if isinstance(node, ast.Name)]
    local = {node.id for node in walk(around) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    local |= {node.arg for node in walk(around) if isinstance(node, ast.arg)} - {"self"}
    if any(node.id not in given and node.id in local for node in read):
        return None
    for name, argument in given.items():
        once = sum(node.id == name for node in read) == 1
        if not once and not isinstance(argument, ast.Name | ast.Constant):
            return None
    if sum(not isinstance(argument, SIMPLE) for argument in given.values()) > 1:
        return None  # they would be computed in another order
    if any(isinstance(node, ast.Lambda | ast.comprehension | ast.NamedExpr) for node in walk(value)):
        return None
    handed = [one for inner in calls_in(value) for one in inner.args]
    start = facts.span(value).column
    text = source(facts, value)
    for node in sorted(read, key=lambda one: one.col_offset, reverse=True):
        if node.id in given:
            place = facts.span(node)
            told = source(facts, given[node.id])
            whole = told if node in handed or isinstance(given[node.id], PLAIN) else f"({told})"
            text = f"{text[: place.column - start]}{whole}{text[(place.end_column or 0) - start :]}"
    return text if isinstance(value, PLAIN) or _alone(call, around, value) else f"({text})"


def _alone(call: ast.Call, around: ast.FunctionDef, value: ast.expr) -> bool:
    """Whether ``call`` stands where any expression may."""
    for node in walk(around):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return) and node.value is call:
            return True
        if isinstance(node, ast.Call) and call in node.args:
            return not isinstance(value, ast.Tuple)
    return False
