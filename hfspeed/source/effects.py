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
_MODULES = frozenset({"F", "functional", "math", "nn", "np", "torch"})
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

    Attribute chains count as names: a store to ``self.a.b`` gives ``self``, ``self.a`` and ``self.a.b``.
    The object a method belongs to is known by the name ``self``; it shares no memory by itself.
    """
    stmts = list(stmts)
    changed = set(_changed(stmts))
    pairs = list(_aliases(stmts if scope is None else scope))
    grew = True
    while grew:
        linked = {b for a, b in pairs if a in changed} | {a for a, b in pairs if b in changed}
        grew = not linked <= changed
        changed |= linked
    slots = (n for n in _walk(stmts) if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load))
    return changed | set(bound(stmts)) | {chain for slot in slots if (chain := dotted(slot))}


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
        if isinstance(node, ast.Name | ast.Attribute):
            yield from _prefixes(dotted(node))


def _prefixes(chain: str | None) -> list[str]:
    """``a.b.c`` gives ``a``, ``a.b`` and ``a.b.c``; a module gives nothing."""
    parts = chain.split(".") if chain else []
    if not parts or parts[0] in _MODULES:
        return []
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _changed(stmts: Iterable[ast.AST]) -> Iterator[str]:
    for node in _walk(stmts):
        if isinstance(node, ast.AugAssign):
            yield from _reached(node.target)
        elif isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield from _reached(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
            yield from _names([node.value])
        elif isinstance(node, ast.Call):
            yield from _changed_by(node)


def _reached(node: ast.AST) -> list[str]:
    """The names whose value ``node`` is, or is a part or a view of."""
    while dotted(node) is None:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return []
    return _prefixes(dotted(node))


def _changed_by(call: ast.Call) -> Iterator[str]:
    """What a call whose result is used may still change."""
    name = _called(call)
    in_place = name.endswith("_") and not name.endswith("__")
    if isinstance(call.func, ast.Attribute) and (in_place or name in _MUTATORS):
        yield from _reached(call.func.value)
    if in_place:
        yield from _names(call.args)
    for keyword in call.keywords:
        if keyword.arg == "out":
            yield from _names([keyword.value])
        if keyword.arg == "inplace" and not _is_false(keyword.value):
            yield from _names([*call.args, call.func])


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


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
    for part in _parts(target):
        name = dotted(part)  # an item of something is no name of its own
        for source in _sources(value) if name else ():
            yield str(name), source


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _sources(value: ast.expr) -> Iterator[str]:
    """Names whose memory ``value`` may be, or hold."""
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript):
        yield from (name for name in _reached(value) if name != "self")
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
    """A view method gives its receiver; a function that makes views, or writes, gives its arguments."""
    name = _called(call)
    passes = name in _VIEWS or (name.endswith("_") and not name.endswith("__"))
    method = isinstance(call.func, ast.Attribute) and root(call.func) not in _MODULES
    if passes and method and isinstance(call.func, ast.Attribute):
        yield from _sources(call.func.value)
    elif passes or name in _HANDED:
        yield from (source for argument in call.args for source in _sources(argument))
