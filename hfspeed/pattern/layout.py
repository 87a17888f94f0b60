"""How the dimensions of attention's tensors are ordered, and the way to the order of the interface."""

from __future__ import annotations

from typing import Final

import torch

INTERFACE: Final = "bhtd"
"""Query, key and value as the interface takes them: batch, heads, tokens, size."""
RESULT: Final = "bthd"
"""What it returns."""


def laid(tensor: torch.Tensor, layout: str, wanted: str = INTERFACE) -> torch.Tensor:
    """``tensor``, whose dimensions are ``layout``, in the order ``wanted``; a missing batch is one sequence."""
    if "b" not in layout:
        return laid(tensor[None], f"b{layout}", wanted)
    if "b" not in wanted:
        return laid(tensor, layout, f"b{wanted}")[0]
    return tensor if layout == wanted else tensor.permute(*(layout.index(name) for name in wanted))


def spelled(text: str, layout: str, wanted: str = INTERFACE) -> str:
    """The source of `laid`, short where two neighbours change places."""
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
