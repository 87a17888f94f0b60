"""From a class to the text of the method its author wrote, or a refusal that says why not."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType

from hfspeed.refusal import Place, Reason, Refusal, Refused
from hfspeed.source.layout import dedented
from hfspeed.source.recovered import Recovered
from hfspeed.source.unwrap import inert, layers

_FUTURE = 0x1FF0000  # the code flags that `from __future__ import ...` sets
_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = ast.ClassDef | _Definition


def recover(cls: type, method: str = "forward") -> Recovered:
    """The source of ``cls.method``, looked up where it is defined and inside its decorators.

    Raises:
        Refused: ``no-source`` if there is no file or it no longer is what was imported; ``closure``
            if the method reads variables of an enclosing function; ``unsupported-syntax`` if it is
            no plain ``def`` with a first parameter.
    """
    owner = next((c for c in cls.__mro__ if method in c.__dict__), None)
    chain = layers(owner.__dict__[method], method) if owner else []
    if owner is None or not chain:
        raise _refused(Reason.NO_SOURCE, f"`{cls.__name__}` has no Python `{method}`", cls)
    function = chain[-1]
    place = Place(function.__code__.co_filename, function.__code__.co_firstlineno)
    _check_kind(function, method, owner, place)
    module = _module(function, owner, place)
    lines = _lines(function)
    if not lines:
        raise _refused(Reason.NO_SOURCE, f"{place.file} cannot be read", owner, place)
    tree = _tree("".join(lines), place.file)
    scopes = _find(tree, function.__code__) if tree else None
    if not tree or not scopes or not _same(tree, scopes, function.__code__):
        raise _refused(Reason.NO_SOURCE, "the file changed since it was imported", owner, place)
    return _cut(scopes[-1], lines, owner, module, chain)


def _refused(reason: Reason, found: str, cls: type, place: Place | None = None) -> Refused:
    return Refused(Refusal("rewrite", reason, found, cls.__name__, place))


def _check_kind(function: FunctionType, method: str, owner: type, place: Place) -> None:
    code = function.__code__
    strange = {
        "a lambda": code.co_name == "<lambda>",
        "a coroutine": bool(code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR)),
        "a generator": bool(code.co_flags & inspect.CO_GENERATOR),
        f"`{code.co_name}`, put in its place": code.co_name != method,
        "without a first parameter for the module": code.co_argcount == 0,
    }
    for what, is_so in strange.items():
        if is_so:
            raise _refused(Reason.UNSUPPORTED_SYNTAX, f"`{method}` is {what}", owner, place)
    free = [name for name in code.co_freevars if name != "__class__"]
    if free:
        told = ", ".join(f"`{name}`" for name in free)
        found = f"`{method}` reads {told} of an enclosing function"
        raise _refused(Reason.CLOSURE, found, owner, place)


def _module(function: FunctionType, owner: type, place: Place) -> str:
    name = str(function.__globals__.get("__name__", ""))
    known = sys.modules.get(name)
    if known is None or vars(known) is not function.__globals__:
        found = f"the names it uses are in no importable module (`{name}`)"
        raise _refused(Reason.NO_SOURCE, found, owner, place)
    return name


def _lines(function: FunctionType) -> list[str]:
    file = function.__code__.co_filename
    linecache.checkcache(file)
    return linecache.getlines(file, function.__globals__)


@lru_cache(maxsize=32)
def _tree(text: str, file: str) -> ast.Module | None:
    try:
        return ast.parse(text, file)
    except SyntaxError:  # only possible if the file changed since it was imported
        return None


def _find(tree: ast.Module, code: CodeType) -> list[_Scope] | None:
    """The definition that ``code`` was compiled from, last, after the scopes around it."""

    def search(node: ast.AST, around: list[_Scope]) -> Iterator[list[_Scope]]:
        for child in ast.iter_child_nodes(node):
            inner = around
            if isinstance(child, _Scope):
                inner = [*around, child]
                if child.name == code.co_name and _first_line(child) == code.co_firstlineno:
                    yield inner
            yield from search(child, inner)

    return next(search(tree, []), None)


def _first_line(scope: _Scope) -> int:
    return min([scope.lineno, *(decorator.lineno for decorator in scope.decorator_list)])


def _same(tree: ast.Module, scopes: list[_Scope], code: CodeType) -> bool:
    """Whether the text on disk still compiles to the code that runs."""
    if any(name.startswith("@py_") for name in code.co_varnames):
        return True  # pytest rewrote the asserts, so codes differ though the text is the same
    body: ast.stmt = _alone(scopes[-1])
    for scope in reversed(scopes[:-1]):
        shell = ast.parse(f"class {scope.name}: pass").body[0]
        assert isinstance(shell, ast.ClassDef)
        if isinstance(scope, ast.ClassDef):  # other scopes matter only to closures, refused before
            shell.body = [body]
            body = shell
    alone = ast.Module([*_imports(tree), body], [])
    flags = code.co_flags & _FUTURE
    compiled = compile(ast.fix_missing_locations(alone), code.co_filename, "exec", flags, True)
    return any(_print(other) == _print(code) for other in _nested(compiled))


def _imports(tree: ast.Module) -> list[ast.stmt]:
    """Imports of the module scope: the compiler emits other code for calls on imported names."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module != "__future__"):
            found.append(node)
        elif not isinstance(node, _Scope | ast.expr):
            waiting += ast.iter_child_nodes(node)
    return found


def _print(code: CodeType) -> tuple[object, ...]:
    """What two codes of one meaning share, wherever they stand."""
    constants = tuple(_print(c) if isinstance(c, CodeType) else _shown(c) for c in code.co_consts)
    return code.co_name, code.co_code, code.co_names, code.co_varnames, constants


def _shown(constant: object) -> str:
    ordered = sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant
    return f"{type(constant).__name__} {ordered!r}"


def _alone(scope: _Scope) -> _Scope:
    """The definition without its decorators, which do not change its code."""
    copy = type(scope)(**{name: getattr(scope, name) for name in scope._fields})
    copy.decorator_list = []
    return ast.copy_location(copy, scope)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _cut(scope: _Scope, lines: list[str], owner: type, module: str, chain: list[FunctionType]) -> Recovered:
    first, last = _first_line(scope), scope.end_lineno or scope.lineno
    text, removed = dedented("".join(lines[first - 1 : last]).rstrip("\n"), scope.col_offset)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    parameters = [*tree.args.posonlyargs, *tree.args.args]
    return Recovered(
        text=text,
        tree=tree,
        file=chain[-1].__code__.co_filename,
        line=first,
        indent=scope.col_offset,
        cls_module=owner.__module__,
        cls_name=owner.__qualname__,
        self_name=parameters[0].arg,
        module=module,
        inert=tuple(inert(tree.decorator_list, chain[:-1], chain[-1].__globals__)),
        removed=removed,
    )
