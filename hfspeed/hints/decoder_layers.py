"""The repeated blocks that pipeline stages cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, overload

from hfspeed.errors import HintError
from hfspeed.hints.hint import said

T = TypeVar("T")


@overload
def decoder_layers(layers: type[T], /) -> type[T]: ...
@overload
def decoder_layers(layers: str | None = None) -> Callable[[type[T]], type[T]]: ...
def decoder_layers(layers: type[T] | str | None = None) -> type[T] | Callable[[type[T]], type[T]]:
    """Say that this class is the decoder: it runs the blocks in its child ``layers`` one after another.

    ``@decoder_layers`` alone leaves the child to be found.

    Raises:
        HintError: not above a class, or ``layers`` is not the name of a child.
    """
    if layers is None or isinstance(layers, str):
        return said("decoder_layers", None, {"layers": layers})
    if not isinstance(layers, type):
        raise HintError(f'@decoder_layers takes the name of a child, got a {type(layers).__name__}; write "layers"')
    return said("decoder_layers", layers, {})(layers)
