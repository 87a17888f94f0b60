"""The author's function inside its decorators, and which decorators left a wrapper around it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any


def layers(outer: object, name: str) -> list[FunctionType]:
    """The functions from the outermost wrapper to the author's own, which comes last.

    Follows ``__wrapped__``; where a decorator did not leave it, the one function named ``name`` that
    the wrapper closes over. Empty if ``outer`` is no Python function.
    """
    chain: list[FunctionType] = []
    function = outer
    while isinstance(function, FunctionType) and function not in chain:
        chain.append(function)
        function = function.__dict__.get("__wrapped__") or _closed_over(function, name)
    return chain


def _closed_over(function: FunctionType, name: str) -> FunctionType | None:
    if function.__code__.co_name == name:
        return None
    found = [f for f in _cells(function) if isinstance(f, FunctionType) and f.__name__ == name]
    return found[0] if len(found) == 1 else None


def _cells(function: FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # the cell is still empty
            continue


def inert(decorators: list[ast.expr], wrappers: list[FunctionType], names: Mapping[str, Any]) -> list[int]:
    """Indices of the decorators that cannot have left any of ``wrappers``, so returned their function.

    A wrapper is laid to every decorator whose code contains it or cannot be seen, or to all if none
    is. A decorator is inert if it has no place in any assignment that keeps the order.
    """
    reach = [_reachable(_resolved(decorator, names)) for decorator in decorators]
    makers: list[set[int]] = []
    for wrapper in wrappers:
        known = {i for i, codes in enumerate(reach) if wrapper.__code__ in codes}
        unseen = {i for i, codes in enumerate(reach) if not codes}
        makers.append(known | unseen if known else set(range(len(decorators))))
    used: set[int] = set()
    assignments = 0
    for chosen in combinations(range(len(decorators)), len(wrappers)):
        if all(index in maker for index, maker in zip(chosen, makers, strict=True)):
            used.update(chosen)
            assignments += 1
    if not assignments:
        return []
    return [index for index in range(len(decorators)) if index not in used]


def _resolved(decorator: ast.expr, names: Mapping[str, Any]) -> object:
    """The object a decorator's name stands for; of ``@name(...)`` the factory itself."""
    if isinstance(decorator, ast.Call):
        return _resolved(decorator.func, names)
    if isinstance(decorator, ast.Attribute):
        return getattr(_resolved(decorator.value, names), decorator.attr, None)
    if isinstance(decorator, ast.Name):
        return names.get(decorator.id, getattr(builtins, decorator.id, None))
    return None


def _reachable(root: object) -> set[CodeType]:
    """Code nested in ``root`` or in the functions of its module that it names."""
    waiting = [root] if isinstance(root, FunctionType) else _methods(root)
    seen: list[FunctionType] = []
    codes: set[CodeType] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.append(function)
        nested = list(_nested(function.__code__))
        codes.update(nested)
        waiting += _neighbours(function, nested)
    return codes


def _methods(root: object) -> list[FunctionType]:
    """What runs when ``root``, a class or one of its instances, is used as a decorator."""
    if root is None:
        return []
    cls = root if isinstance(root, type) else type(root)
    found: list[object] = []
    for parent in cls.__mro__[:-1]:
        for name in ("__call__", "__new__", "__init__"):
            method = parent.__dict__.get(name)
            found.append(getattr(method, "__func__", method))
    return [method for method in found if isinstance(method, FunctionType)]


def _neighbours(function: FunctionType, codes: list[CodeType]) -> list[FunctionType]:
    """Functions of its module that ``function`` names or closes over; other modules' are their affair."""
    found = [function.__globals__.get(name) for code in codes for name in code.co_names]
    found += [function.__dict__.get("__wrapped__"), *_cells(function)]
    return [other for other in found if isinstance(other, FunctionType) and other.__globals__ is function.__globals__]


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
