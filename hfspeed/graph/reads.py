"""Which attributes of modules are read in a run: every one that an instance has passes a descriptor of ours."""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Final

from torch import nn

from hfspeed.graph.frozen import frozen

OWN: Final = frozenset(vars(nn.Module()))
"""Attributes in which torch keeps parameters, children and hooks."""
_MISSING: Final = object()
_BEHIND = {"__dict__", "vars", "__getattribute__"}
"""Names by which code reads attributes that no descriptor sees."""
_KEPT: Final = (list, dict, set, int, float, str, Iterator)
"""Types of what a file may keep count in."""
_APART = frozenset({"__init__", "__repr__", "__str__", "extra_repr", "__getstate__", "__setstate__"})
"""Methods that no forward calls."""


class _Seen:
    """Stands on a class for one attribute of its instances, and tells of each read."""

    def __init__(self, name: str, default: Any, reads: set[tuple[int, str]]) -> None:
        self.name, self.default, self.reads = name, default, reads

    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        if instance is not None:
            self.reads.add((id(instance), self.name))
            if self.name in instance.__dict__:
                return instance.__dict__[self.name]
        if self.default is _MISSING:
            raise AttributeError(self.name)
        bind = getattr(type(self.default), "__get__", None)
        return bind(self.default, instance, owner) if bind else self.default

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value

    def __delete__(self, instance: Any) -> None:
        del instance.__dict__[self.name]


def attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """What the author's code put on a module, parameters and children aside."""
    return ((name, value) for name, value in vars(module).items() if name not in OWN)


def foreign(cls: type[Any]) -> bool:
    """Whether a class is torch's own: nobody watches it, and all of its attributes count as read."""
    return cls.__module__.partition(".")[0] == "torch"


@functools.lru_cache(maxsize=1024)
def hidden(cls: type[Any]) -> bool:
    """Whether code of a class may read attributes past descriptors."""
    for owner in cls.__mro__:
        if foreign(owner) or owner is object:
            continue
        for name, method in vars(owner).items():
            if name in _APART:
                continue
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            if code is not None and any(_BEHIND & set(one.co_names) or _stores(one) for one in _codes(code)):
                return True
    return False


def surroundings(module: nn.Module) -> Hashable:
    """What the files of a module's classes have in the names that their methods read: counters, lists, settings."""
    classes = dict.fromkeys(type(one) for one in module.modules())
    return tuple(
        (name, frozen(space[name]))
        for cls in classes
        for name, space in _read_outside(cls)  # type: ignore[arg-type]  # mypy takes no class for hashable
        if isinstance(space.get(name), _KEPT)
    )


@functools.lru_cache(maxsize=1024)
def _read_outside(cls: type[Any]) -> tuple[tuple[str, dict[str, Any]], ...]:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for owner in cls.__mro__:
        for method in vars(owner).values() if not foreign(owner) else ():
            function = inspect.unwrap(method) if callable(method) else None
            space = getattr(function, "__globals__", {})
            for code in _codes(function.__code__) if isinstance(function, FunctionType) else ():
                found |= {(name, id(space)): space for name in code.co_names if name in space}
    return tuple((name, space) for (name, _), space in found.items())


def _stores(code: CodeType) -> bool:
    """Whether code writes to a name of its file, which the next layer may read."""
    return any(step.opname == "STORE_GLOBAL" for step in dis.get_instructions(code))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


@contextmanager
def reading(modules: Iterable[nn.Module]) -> Iterator[set[tuple[int, str]]]:
    """While the block runs, the reads of attributes of ``modules``: which instance, by ``id``, and which name."""
    reads: set[tuple[int, str]] = set()
    names: dict[type[Any], set[str]] = {}
    for module in modules:
        if not foreign(type(module)):
            names.setdefault(type(module), set()).update(name for name, _ in attributes(module))
    # defaults first: a class may inherit from another that is watched as well
    found = {
        (cls, name): inspect.getattr_static(cls, name, _MISSING) for cls, several in names.items() for name in several
    }
    placed: list[tuple[type[Any], str, Any]] = []
    try:
        for (cls, name), default in found.items():
            if hasattr(type(default), "__set__"):
                continue  # the class has a descriptor, so the instance's own value is never read
            placed.append((cls, name, vars(cls).get(name, _MISSING)))
            setattr(cls, name, _Seen(name, default, reads))
        yield reads
    finally:
        for cls, name, before in placed:
            if before is _MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, before)
