"""The class that divides by the root mean square of its input's last dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from hfspeed.hints.hint import said

T = TypeVar("T")


@overload
def norm(cls: type[T], /) -> type[T]: ...
@overload
def norm() -> Callable[[type[T]], type[T]]: ...
def norm(cls: type[T] | None = None, /) -> type[T] | Callable[[type[T]], type[T]]:
    """Say that this class is a root-mean-square norm, however it is written.

    Raises:
        HintError: not above a class.
    """
    store: Callable[[type[T]], type[T]] = said("norm", cls, {})
    return store if cls is None else store(cls)
