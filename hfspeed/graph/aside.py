"""Attention that the interface is asked for, but not over tokens: over what earlier layers gave, token by token."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from hfspeed.graph.record import recorder

ASIDE: Final = "hfspeed_aside"
"""The attribute of a module, or of its class, that attends so."""
KNOWN: Final = frozenset({"scaling", "is_causal", "attention_mask"})
"""What acts in it."""


def is_aside(module: nn.Module, query: torch.Tensor, key: torch.Tensor) -> bool:
    """Whether a call of the interface has the tokens of the prompt where heads are, and something else in their place.

    Told by a recorded prompt, whose length is known; from then on the class of ``module`` is known to do so.
    """
    if getattr(module, ASIDE, False):
        return True
    tokens = _tokens()
    if tokens is None or query.ndim != 4 or key.ndim != 4:
        return False
    found = query.shape[1] == key.shape[1] == tokens and tokens not in (query.shape[2], key.shape[2])
    if found:
        setattr(type(module), ASIDE, True)
    return found


def beside(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **keywords: Any
) -> tuple[torch.Tensor, None]:
    """The attention itself, in plain operations.

    Args:
        query: ``[batch, tokens, queries, size]``.
        key: ``[batch, tokens, others, size]``.
        value: ``[batch, tokens, others, value_size]``.
        keywords: ``scaling`` and ``is_causal`` act.

    Returns:
        ``[batch, queries, tokens, value_size]``, and ``None`` where weights would be.
    """
    scale, asked = keywords.get("scaling"), keywords.get("is_causal")
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scale is None else scale)
    several = query.shape[2] > 1  # as transformers has it: a single query sees all
    if several and (getattr(module, "is_causal", True) if asked is None else asked):
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), None


def _tokens() -> int | None:
    """The length of the prompt that is being recorded."""
    active = recorder()
    given = active.stack[0].call.kwargs.get("input_ids") if active and active.stack else None
    return int(given.shape[1]) if isinstance(given, torch.Tensor) and given.ndim == 2 else None
