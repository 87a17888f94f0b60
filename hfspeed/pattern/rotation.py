"""Rotary position embedding by its definition: pairs of elements are turned by an angle of each token."""

from __future__ import annotations

import torch

from hfspeed.plan.ops import Table


def once(value: torch.Tensor, table: Table) -> torch.Tensor:
    """Cosines or sines ``[1, tokens, size]``, with more dimensions of one or fewer, as ``[tokens, angles]``.

    An angle that stands twice is read once: whoever uses this has proven that both are the same.
    """
    flat = value.reshape(-1, value.shape[-1])
    if table == "half":
        return flat
    return flat[:, : flat.shape[-1] // 2] if table == "halves" else flat[:, ::2]


def twice(angles: torch.Tensor, table: Table) -> torch.Tensor:
    """``[..., angles]`` laid out as ``table`` says: the reverse of `once`."""
    if table == "half":
        return angles
    return torch.cat((angles, angles), -1) if table == "halves" else angles.repeat_interleave(2, -1)


def turned(
    value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, tokens: int, interleaved: bool
) -> torch.Tensor:
    """Every head turned.

    Args:
        value: ``[1, heads, tokens, size]``, or with tokens and heads exchanged.
        cos: ``[tokens, angles]``, the first ``2 * angles`` elements of a head are turned, the rest stays.
        sin: the same.
        tokens: the dimension of ``value`` that counts tokens.
        interleaved: neighbours turn together; else elements that are ``angles`` apart.

    Returns:
        The same shape and dtype.
    """
    around = 3 - tokens  # heads come beside, in dimension 1 or 2
    cos, sin = (one.unsqueeze(around - 1).unsqueeze(0) for one in (cos, sin))
    size = 2 * cos.shape[-1]
    part = value[..., :size]
    first, second = (part[..., ::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    pair = first * cos - second * sin, second * cos + first * sin
    whole = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    whole = whole.to(value.dtype)
    return whole if size == value.shape[-1] else torch.cat((whole, value[..., size:]), -1)
