"""The block that routes tokens to experts, and which child is which."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from hfspeed.hints.hint import said

T = TypeVar("T")


@overload
def experts(cls: type[T], /) -> type[T]: ...
@overload
def experts(
    *, router: str | None = None, experts: str | None = None, shared: str | None = None
) -> Callable[[type[T]], type[T]]: ...
def experts(
    cls: type[T] | None = None, /, *, router: str | None = None, experts: str | None = None, shared: str | None = None
) -> type[T] | Callable[[type[T]], type[T]]:
    """Say that this class sends each token from its child ``router`` to a few of its child ``experts``.

    ``shared`` is the child that every token visits besides.

    Raises:
        HintError: not above a class, or a name cannot be that of a child.
    """
    store: Callable[[type[T]], type[T]] = said("experts", cls, {"router": router, "experts": experts, "shared": shared})
    return store if cls is None else store(cls)
