"""Whether a value may be written over: nobody else reads it, or anything that shares its memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from torch import fx

from hfspeed.graph.nodes import SPLITS, function_name, is_part, module_of

_VIEWS: Final = frozenset({
    "view", "reshape", "transpose", "permute", "unflatten", "flatten", "unsqueeze", "squeeze", "swapaxes", "contiguous",
    "movedim", "view_as", "mT", "T", "swapdims", "narrow", "select", "to", "type_as", "float", "half", "bfloat16",
})  # fmt: skip
"""Functions whose result may share memory with their first argument."""
_MAKERS: Final = frozenset({"mul", "add", "sub", "div", "matmul", "linear", "cat", "rms_norm", "layer_norm"})
"""Functions whose result is always in memory of its own."""


def is_fresh(node: fx.Node, readers: Collection[fx.Node]) -> bool:
    """Whether only ``readers`` read what ``node`` gave, and it lies in memory that nobody else reads.

    Parts that a split gives lie side by side, so what is done to one is not seen in another.
    """
    if any(user not in readers for user in node.users):
        return False
    at = node
    while True:
        name = function_name(at)
        if module_of(at) is not None:
            return any(True for _ in module_of(at).parameters())  # type: ignore[union-attr]
        if name in _MAKERS:
            return True
        if is_part(at):
            split = at.args[0]
            if not isinstance(split, fx.Node) or function_name(split) not in SPLITS:
                return False
            if any(not is_part(user) for user in split.users) or _read_twice(split):
                return False
            above = split.args[0]
        elif name in _VIEWS:
            above = at.args[0]
        else:
            return False
        if not isinstance(above, fx.Node) or len(above.users) != 1:
            return False
        at = above


def _read_twice(split: fx.Node) -> bool:
    parts = [user.args[1] for user in split.users]
    return len(set(map(str, parts))) != len(parts)
