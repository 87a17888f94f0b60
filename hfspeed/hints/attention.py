"""The class that calls the attention interface, and which child is which projection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from hfspeed.hints.hint import said

T = TypeVar("T")


@overload
def attention(cls: type[T], /) -> type[T]: ...
@overload
def attention(
    *, query: str | None = None, key: str | None = None, value: str | None = None, output: str | None = None
) -> Callable[[type[T]], type[T]]: ...
def attention(
    cls: type[T] | None = None,
    /,
    *,
    query: str | None = None,
    key: str | None = None,
    value: str | None = None,
    output: str | None = None,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Say that this class is the attention of one layer; name the projections that cannot be found from the code.

    Raises:
        HintError: not above a class, or a name cannot be that of a child.
    """
    store: Callable[[type[T]], type[T]]
    store = said("attention", cls, {"query": query, "key": key, "value": value, "output": output})
    return store if cls is None else store(cls)
