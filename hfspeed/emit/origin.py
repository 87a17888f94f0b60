"""Where an emitted forward comes from: its class, the class that defined it, and the globals it sees."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from hfspeed.emit.names import free, identifiers
from hfspeed.errors import PlanError, SubjectError
from hfspeed.plan import Forward
from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.unwrap import layers


@dataclass(frozen=True)
class Origin:
    """One forward to emit and what it stood among.

    Attributes:
        forward: as planned.
        owner: the class that defines the author's method: ``forward.base`` or a parent of it.
        module: the module whose globals that forward sees.
        names: those globals.
        uses: the names among them, or missing from them, that the new text looks up; no builtins.
    """

    forward: Forward
    owner: type
    module: str
    names: Mapping[str, Any]
    uses: frozenset[str]

    @property
    def rebound(self) -> frozenset[str]:
        """Used names that a function of the author's module rebinds, so no import may freeze."""
        return self.uses & _rebound(sys.modules[self.module])


def origin(forward: Forward) -> Origin:
    """Look the author's class up and find whose forward it has.

    Raises:
        SubjectError: the author's module cannot be imported.
        PlanError: it has no such class, or the text is no forward.
        Refused: the class cannot be named from another module, or private names would change meaning.
    """
    definition(forward)
    base = author_of(forward)
    method = forward.method
    owner = next((c for c in base.__mro__ if method in c.__dict__), base)
    chain = layers(owner.__dict__.get(method), method)
    names = chain[-1].__globals__ if chain else vars(sys.modules[owner.__module__])
    if reach(sys.modules[owner.__module__], owner.__qualname__) is not owner:
        found = f"`{owner.__qualname__}` cannot be named outside of the function that makes it"
        raise Refused(Refusal("emit", Reason.CLOSURE, found, forward.base))
    _check_private(forward, owner)
    uses = frozenset(n for n in free(forward.text) if n in names or n not in dir(sys.modules["builtins"]))
    return Origin(forward, owner, str(names["__name__"]), names, uses)


def definition(forward: Forward) -> ast.FunctionDef:
    """The forward's text, parsed."""
    try:
        body = ast.parse(forward.text.strip("\n")).body
    except SyntaxError as error:
        raise PlanError(f"the forward of {forward.name} does not parse: {error}") from error
    if len(body) != 1 or not isinstance(body[0], ast.FunctionDef) or body[0].name != forward.method:
        raise PlanError(f"the text for {forward.name} is no single `def {forward.method}`")
    if not body[0].args.posonlyargs + body[0].args.args:
        raise PlanError(f"the forward of {forward.name} takes no `self`")
    return body[0]


def author_of(forward: Forward) -> type:
    """The author's class that ``forward`` derives from."""
    try:
        module = import_module(forward.module)
    except ImportError as error:
        raise SubjectError(f"cannot import {forward.module}, which has the author's {forward.base}: {error}") from error
    base = reach(module, forward.base)
    if not isinstance(base, type):
        raise PlanError(f"{forward.module} has no class {forward.base}, which the plan rewrites")
    return base


def reach(module: ModuleType, qualname: str) -> object:
    """What a dotted name stands for in ``module``, or ``None``."""
    found: object = module
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return found


def _check_private(forward: Forward, owner: type) -> None:
    """Python mixes the class's name into names like ``__x``; another class name would give another one."""
    private = sorted(n for n in identifiers(forward.text) if n.startswith("__") and not n.endswith("__"))
    if private and forward.name.lstrip("_") != owner.__name__.lstrip("_"):
        found = f"`{private[0]}` is private to `{owner.__name__}` and would mean another name in `{forward.name}`"
        raise Refused(Refusal("emit", Reason.UNSUPPORTED_SYNTAX, found, forward.base))


@lru_cache(maxsize=32)
def _rebound(module: ModuleType) -> frozenset[str]:
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):  # no file: nothing can be known, as for any patched module
        return frozenset()
    return frozenset(name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names)
