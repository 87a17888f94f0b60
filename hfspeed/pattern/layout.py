"""How the dimensions of attention's tensors are ordered, and the way to the order of the interface."""

from __future__ import annotations

from typing import Final

import torch

INTERFACE: Final = "bhtd"
"""Query, key and value as the interface takes them: batch, heads, tokens, size."""
RESULT: Final = "bthd"
"""What it returns."""


FLAT: Final = "/"
"""In a layout: heads and their sizes are one dimension."""


def _size(layout: str) -> int:
    return int(layout.partition(FLAT)[2])


def laid(tensor: torch.Tensor, layout: str, wanted: str = INTERFACE) -> torch.Tensor:
    """``tensor``, whose dimensions are ``layout``, in the order ``wanted``; a missing batch is one sequence.

    Where heads are no dimension of their own, ``layout`` is ``bt/32``: heads of 32 lie behind one another in the last.
    """
    if FLAT in layout:
        return laid(tensor.reshape(*tensor.shape[:-1], -1, _size(layout)), RESULT, wanted)
    if FLAT in wanted:
        return laid(tensor, layout, RESULT).flatten(2)
    if "b" not in layout:
        return laid(tensor[None], f"b{layout}", wanted)
    if "b" not in wanted:
        return laid(tensor, layout, f"b{wanted}")[0]
    return tensor if layout == wanted else tensor.permute(*(layout.index(name) for name in wanted))


def spelled(text: str, layout: str, wanted: str = INTERFACE, size: str = "") -> str:
    """The source of `laid`, short where two neighbours change places; ``size`` is that of heads, in words."""
    if FLAT in layout:
        return spelled(f"{text}.unflatten(-1, (-1, {size or _size(layout)}))", RESULT, wanted)
    if FLAT in wanted:
        return f"{spelled(text, layout, RESULT)}.flatten(2)"
    if "b" not in layout:
        return spelled(f"{text}[None]", f"b{layout}", wanted)
    if "b" not in wanted:
        return spelled(text, layout, f"b{wanted}") + "[0]"
    moved = [at for at, (one, other) in enumerate(zip(layout, wanted, strict=True)) if one != other]
    if not moved:
        return text
    if len(moved) == 2:
        return f"{text}.transpose({moved[0]}, {moved[1]})"
    return f"{text}.permute({', '.join(str(layout.index(name)) for name in wanted)})"
