"""Attention by hand in a function that a module's method calls: the whole call gives way, not what is inside."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from types import CodeType

from torch import fx

from hfspeed.graph.nodes import value_of
from hfspeed.graph.positions import span_at
from hfspeed.pattern.layout import FLAT, laid
from hfspeed.pattern.scores import Operand, Written, descends, refused
from hfspeed.refusal import Reason, Refused

Frame = tuple[CodeType, int]
"""A function that is running, and how far it has come."""


def widened(one: Written, frame: Frame, tokens: int) -> Written:
    """``one`` with what the call at ``frame`` takes as query, key and value, and with what it gives as the result.

    Raises:
        Refused: query, key and value do not go in as heads, or more than the result comes out.
    """
    inside = {node for node in one.call.graph.nodes if frame in node.meta.get("stack", ())}
    parts = [_entry(one, part, inside, tokens) for part in (one.query, one.key, one.value)]
    made = descends(one.last) & inside
    out = [node for node in made if any(user not in inside for user in node.users)]
    if len(out) != 1:
        raise _helper(one, "the function that attends has several results")
    layout = _layout(one, out[0], tokens, one.value)
    return replace(one, query=parts[0], key=parts[1], value=parts[2], last=out[0], layout=layout)


def arguments(one: Written, inner: Written, function: CodeType, call: ast.Call) -> list[ast.expr]:
    """The arguments of ``call`` that ``function`` makes query, key and value of, as its text tells.

    Args:
        one: the attention, for refusals.
        inner: the same as it is computed in ``function``.
        function: what is called.
        call: the expression that calls it.

    Raises:
        Refused: the text does not tell.
    """
    tree = _definition(function)
    pairs = ((inner.first, inner.query), (inner.first, inner.key), (inner.last, inner.value))
    if tree is None or any(isinstance(a, ast.Starred) for a in call.args):
        raise _helper(one, "the function that attends cannot be read")
    names = [entry.arg for entry in [*tree.args.posonlyargs, *tree.args.args]]
    given = dict(zip(names, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg is not None}
    found = []
    for node, part in pairs:
        product = _product(tree, node, function)
        value = argument(product, node, part.at) if product is not None else None
        name = _root(tree, value) if value is not None else None
        if name is None or name not in given:
            raise _helper(one, "what the function that attends is given cannot be told from its text")
        found.append(given[name])
    return found


def results(function: CodeType) -> int:
    """How many values ``function`` returns side by side; 0 for one alone."""
    tree = _definition(function)
    counts = {
        len(node.value.elts) if isinstance(node.value, ast.Tuple) else 0
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Return)
    }
    return counts.pop() if len(counts) == 1 else -1


def argument(product: ast.expr, node: fx.Node, at: int | str) -> ast.expr | None:
    """The expression of one argument of a recorded call."""
    if isinstance(product, ast.BinOp):
        return product.left if at == 0 else product.right
    if not isinstance(product, ast.Call) or any(isinstance(a, ast.Starred) for a in product.args):
        return None
    named = {k.arg: k.value for k in product.keywords}
    if isinstance(at, str):
        return named.get(at)
    given = list(product.args)
    if len(given) == len(node.args) - 1 and isinstance(product.func, ast.Attribute):
        given.insert(0, product.func.value)
    if len(given) == len(node.args):
        return given[at]
    # the one function that is recorded as torch calls it, not as it was called
    return given[at] if at < len(given) else named.get(("query", "key", "value")[at])


def _entry(one: Written, part: Operand, inside: set[fx.Node], tokens: int) -> Operand:
    """The one value from outside that ``part`` is made of."""
    found, todo = set[fx.Node](), [part.node]
    while todo:
        at = todo.pop()
        if at in inside:
            todo += at.all_input_nodes
        else:
            found.add(at)
    if len(found) != 1:
        raise _helper(one, "query, key and value are not what the function that attends is given")
    (outer,) = found
    return Operand(outer, -1, _layout(one, outer, tokens, part))


def _layout(one: Written, node: fx.Node, tokens: int, part: Operand) -> str:
    """The order of dimensions at ``node``; if heads are none of them, they are of the size that ``part`` has."""
    shape = tuple(getattr(value_of(node), "shape", ()))
    size = laid(value_of(part.node), part.layout).shape[-1]
    if len(shape) == 3 and shape[:2] == (1, tokens) and shape[2] % size == 0:
        return f"bt{FLAT}{size}"
    if len(shape) == 4 and tokens in shape[1:3]:
        return "bhtd" if shape[2] == tokens else "bthd"
    raise _helper(one, "the function that attends does not take and give heads")


@lru_cache(maxsize=256)
def _definition(function: CodeType) -> ast.FunctionDef | None:
    try:
        tree = ast.parse("".join(linecache.getlines(function.co_filename)))
    except SyntaxError:
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name == function.co_name
        and function.co_firstlineno in {node.lineno, *(d.lineno for d in node.decorator_list)}
    ]
    return found[0] if len(found) == 1 else None


def _product(tree: ast.FunctionDef, node: fx.Node, function: CodeType) -> ast.expr | None:
    last = next((last for code, last in node.meta.get("stack", ()) if code is function), None)
    span = span_at(function, last, direct=True) if last is not None else None
    if span is None:
        return None
    place = (span.line, span.column, span.end_line, span.end_column)
    for one in ast.walk(tree):
        if isinstance(one, ast.expr) and (one.lineno, one.col_offset, one.end_lineno, one.end_col_offset) == place:
            return one
    return None


def _root(tree: ast.FunctionDef, value: ast.expr) -> str | None:
    """The parameter that ``value`` is made of, followed through receivers, first arguments and assignments."""
    parameters = {entry.arg for entry in ast.walk(tree) if isinstance(entry, ast.arg)}
    local = parameters | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    for _ in range(20):
        match value:
            case ast.Name(id=name):
                before = [given for last, given in _assigned(tree, name) if last < value.lineno]
                if not before:
                    return name if name in parameters else None
                value = before[-1]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module)), args=[first, *_]) if module not in local:
                value = first
            case ast.Call(func=ast.Attribute(value=receiver)):
                value = receiver
            case ast.Call(args=[first, *_]):
                value = first
            case ast.BinOp(left=left):
                value = left
            case ast.Subscript(value=inner) | ast.Attribute(value=inner):
                value = inner
            case _:
                return None
    return None


def _assigned(tree: ast.FunctionDef, name: str) -> Iterator[tuple[int, ast.expr]]:
    """The last line of each assignment to ``name``, alone or side by side with others, and what it is given there."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        targets, values = _side_by_side(node.targets[0]), _side_by_side(node.value)
        if len(targets) != len(values):
            targets, values = [node.targets[0]], [node.value]
        for target, value in zip(targets, values, strict=True):
            if isinstance(target, ast.Name) and target.id == name:
                yield node.end_lineno or 0, value


def _side_by_side(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _helper(one: Written, told: str) -> Refused:
    help_ = "compute attention in a method, or call the attention interface"
    return refused(one.call, Reason.CALLED_THROUGH_HELPER, told, one.first, help_)
