"""What a stretch of statements may write: names it binds, and names whose values it may change."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

_VIEWS = frozenset({
    "adjoint", "as_strided", "atleast_1d", "atleast_2d", "atleast_3d", "bfloat16", "broadcast_to", "chunk",
    "contiguous", "cpu", "cuda", "detach", "diagonal", "double", "dropout", "dsplit", "expand", "expand_as",
    "flatten", "float", "get", "half", "hsplit", "identity", "imag", "items", "keys", "moveaxis", "movedim",
    "narrow", "numpy", "permute", "positive", "ravel", "real", "rearrange", "reshape", "reshape_as", "select",
    "split", "split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "to", "transpose",
    "type", "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "values", "view", "view_as",
    "view_as_complex", "view_as_real", "vsplit",
})  # fmt: skip
_HANDED = frozenset({"enumerate", "zip", "reversed", "tuple", "list", "iter", "next", "getattr"})
_MUTATORS = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
    "reverse", "setdefault", "sort", "update", "__setitem__", "__delitem__", "__setattr__",
})  # fmt: skip
_NAMED = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar,
)  # fmt: skip


def written(stmts: Iterable[ast.AST], scope: Iterable[ast.AST] | None = None) -> set[str]:
    """Names that ``stmts`` bind or may change in place, on the careful side.

    Binding is assignment in any form, ``del``, loop, ``with``, ``except`` and pattern targets, imports
    and definitions. Change in place is augmented assignment, a store to an item or attribute of a
    name, ``x.op_()``, ``op_(x)``, ``out=x``, ``inplace=True``, methods that change containers, and a
    call made for its effect alone, which may change every name in it.

    A change in place reaches every name that may share memory: those assigned from one another
    directly or through a view, anywhere in ``scope`` (the whole function's body; default: ``stmts``).

    A store to ``self.a.b`` gives ``self`` and ``self.a.b``.
    """
    stmts = list(stmts)
    changed = set(_changed(stmts))
    pairs = list(_aliases(stmts if scope is None else scope))
    grew = True
    while grew:
        linked = {b for a, b in pairs if a in changed} | {a for a, b in pairs if b in changed}
        grew = not linked <= changed
        changed |= linked
    return changed | set(bound(stmts))


def bound(stmts: Iterable[ast.AST]) -> Iterator[str]:
    """Names that ``stmts`` bind or unbind, nested functions included."""
    for node in _walk(stmts):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, _NAMED) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]


def root(node: ast.AST) -> str | None:
    """The name that an attribute, item or chain of method calls starts from: ``x`` of ``x.a[0].b()``."""
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return node.id if isinstance(node, ast.Name) else None


def dotted(node: ast.AST) -> str | None:
    """``self.a.b`` for a plain chain of attributes on a name, else ``None``."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else None
    return node.id if isinstance(node, ast.Name) else None


def _walk(stmts: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for stmt in stmts:
        yield from ast.walk(stmt)


def _names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """All names in ``nodes``, and the plain attribute chains."""
    for node in _walk(nodes):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and (chain := dotted(node)):
            yield chain


def _changed(stmts: Iterable[ast.AST]) -> Iterator[str]:
    for node in _walk(stmts):
        if isinstance(node, ast.AugAssign):
            yield from _stored(node.target)
        elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            yield from _stored(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            yield from _names([node.value])
        elif isinstance(node, ast.Call):
            yield from _changed_by(node)


def _stored(target: ast.AST) -> Iterator[str]:
    whole = target
    while isinstance(whole, ast.Subscript):
        whole = whole.value
    for name in (root(target), dotted(whole)):
        if name:
            yield name


def _changed_by(call: ast.Call) -> Iterator[str]:
    """What a call whose result is used may still change."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else root(call.func) or ""
    in_place = name.endswith("_") and not name.endswith("__")
    if isinstance(call.func, ast.Attribute) and (in_place or name in _MUTATORS):
        yield from _stored(call.func.value)
    if in_place:
        yield from _names(call.args)
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield from _names([keyword.value])
        if keyword.arg == "inplace" and not _is_false(keyword.value):
            yield from _names([*call.args, call.func])


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _aliases(scope: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Pairs of names that may share memory by a direct assignment in ``scope``."""
    for node in _walk(scope):
        targets: Sequence[ast.expr] = ()
        value: ast.expr | None = None
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            targets, value = [node.target], node.value
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars:
            targets, value = [node.optional_vars], node.context_expr
        if value is not None:
            for target in targets:
                yield from _pairs(target, value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    both = (ast.Tuple, ast.List)
    if isinstance(target, both) and isinstance(value, both):
        plain = not any(isinstance(e, ast.Starred) for e in [*target.elts, *value.elts])
        if plain and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                yield from _pairs(one, other)
            return
    for name in {found for part in _parts(target) for found in _stored(part)}:
        for source in _sources(value):
            yield name, source


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target


def _sources(value: ast.expr) -> Iterator[str]:
    """Names whose memory ``value`` may be, or hold."""
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        yield from _stored(value)
        if isinstance(value, ast.Subscript | ast.Attribute):
            yield from _sources(value.value)
    elif isinstance(value, ast.Starred | ast.NamedExpr | ast.Await):
        yield from _sources(value.value)
    elif isinstance(value, ast.IfExp):
        yield from (name for part in (value.body, value.orelse) for name in _sources(part))
    elif isinstance(value, ast.BoolOp):
        yield from (name for part in value.values for name in _sources(part))
    elif isinstance(value, ast.Tuple | ast.List | ast.Set):
        yield from (name for part in value.elts for name in _sources(part))
    elif isinstance(value, ast.Dict):
        yield from (name for part in value.values for name in _sources(part))
    elif isinstance(value, ast.Call):
        yield from _sources_of_call(value)


def _sources_of_call(call: ast.Call) -> Iterator[str]:
    """A view method gives its receiver; a view function, or one that writes, gives its arguments."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else root(call.func) or ""
    passes = name in _VIEWS or (name.endswith("_") and not name.endswith("__"))
    if passes and isinstance(call.func, ast.Attribute):
        yield from _sources(call.func.value)
    if passes or name in _HANDED:
        yield from (source for argument in call.args for source in _sources(argument))
