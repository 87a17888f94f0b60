"""One hint: a frozen record, kept in one attribute of the class it was said of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hfspeed.errors import HintError

T = TypeVar("T")

ATTRIBUTE = "__hfspeed__"
"""The class attribute that holds a tuple of hints."""


@dataclass(frozen=True)
class Hint:
    """What the author said of one class.

    Attributes:
        kind: the decorator's name, e.g. ``"attention"``.
        names: pairs of role and child name, e.g. ``("query", "q_proj")``, in the decorator's own order.
        file: the file in which the decorator stands.
        line: the line of the decorator, from 1.
    """

    kind: str
    names: tuple[tuple[str, str], ...]
    file: str
    line: int

    def name(self, role: str) -> str | None:
        """The child that has ``role``, or ``None`` when the author left it to be found."""
        return dict(self.names).get(role)


def read(cls: object) -> tuple[Hint, ...]:
    """The hints said of ``cls`` itself, a class or a function, in the order they were applied: the lowest first.

    A subclass does not inherit them. A hint from a vendored copy has a class of its own, so each is read by its fields.
    """
    said = getattr(cls, "__dict__", {}).get(ATTRIBUTE, ())
    return tuple(Hint(hint.kind, tuple(hint.names), hint.file, hint.line) for hint in said)


def said(kind: str, cls: object, names: dict[str, object]) -> Callable[[type[T]], type[T]]:
    """The decorator that stores a hint. To be called by the public decorator only: the caller's caller is the author.

    ``cls`` is what a decorator without parentheses was given, else ``None``; it is only checked here.

    Raises:
        HintError: ``cls`` is not a class, or a name is not a string that could name a child.
    """
    if cls is not None and not isinstance(cls, type):
        raise HintError(f"@{kind} marks a class, got {_shown(cls)}; write it above a class")
    pairs = tuple((role, _child(kind, role, name)) for role, name in names.items() if name is not None)
    frame = sys._getframe(2)
    hint = Hint(kind, pairs, frame.f_code.co_filename, frame.f_lineno)

    def store(cls: type[T]) -> type[T]:
        if not isinstance(cls, type):
            raise HintError(f"@{kind} marks a class, got {_shown(cls)}; write it above a class")
        before = vars(cls).get(ATTRIBUTE, ())
        if any(other.kind == kind for other in before):
            raise HintError(f"@{kind} is said twice of `{cls.__name__}`; keep one of them")
        setattr(cls, ATTRIBUTE, (*before, hint))
        return cls

    return store


def _child(kind: str, role: str, name: object) -> str:
    if not isinstance(name, str):
        raise HintError(f'@{kind}: `{role}` takes the name of a child as a string, got {_shown(name)}; write "name"')
    if not all(part.isidentifier() for part in name.split(".")):
        raise HintError(f"@{kind}: `{role}` takes the name of a child, got {name!r}; write it as in `self.name`")
    return name


def _shown(value: object) -> str:
    return f"a {type(value).__name__}"
