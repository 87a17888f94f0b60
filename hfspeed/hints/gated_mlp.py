"""The feed-forward block whose gate and up projections read one input and meet in a product."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from hfspeed.hints.hint import said

T = TypeVar("T")


@overload
def gated_mlp(cls: type[T], /) -> type[T]: ...
@overload
def gated_mlp(
    *, gate: str | None = None, up: str | None = None, down: str | None = None
) -> Callable[[type[T]], type[T]]: ...
def gated_mlp(
    cls: type[T] | None = None, /, *, gate: str | None = None, up: str | None = None, down: str | None = None
) -> type[T] | Callable[[type[T]], type[T]]:
    """Say that this class is ``down(act(gate(x)) * up(x))``; name the projections that cannot be found from the code.

    Raises:
        HintError: not above a class, or a name cannot be that of a child.
    """
    store: Callable[[type[T]], type[T]] = said("gated_mlp", cls, {"gate": gate, "up": up, "down": down})
    return store if cls is None else store(cls)
