"""The attention interface as a recorded leaf: true causal attention on values, shapes alone on meta."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hfspeed.graph.record import recorder


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention for a module that nobody has built attention into yet.

    Args:
        query: ``[batch, heads, tokens, head_size]``.
        key: ``[batch, kv_heads, tokens, head_size]``.
        value: ``[batch, kv_heads, tokens, value_size]``.
        keywords: ``scaling``, ``sliding_window``, ``chunk``, ``softcap``, ``s_aux``, ``alibi`` act; others are only
            recorded.

    Returns:
        ``[batch, tokens, heads, value_size]``, and ``None`` where weights would be.
    """
    active = recorder()
    args = (module, query, key, value, attention_mask)
    out = active.leaf(causal, args, keywords) if active else causal(*args, **keywords)
    return out, None


def causal(
    module: nn.Module,  # noqa: ARG001  the interface's own signature
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,  # noqa: ARG001  as above
    **keywords: Any,
) -> torch.Tensor:
    """What `attend` computes; graphs name this function where a module calls the interface."""
    tokens, heads = query.shape[2], query.shape[1]
    if query.is_meta:
        return query.new_empty(query.shape[0], tokens, heads, value.shape[-1])
    repeat = heads // key.shape[1]
    key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
    scale = keywords.get("scaling")
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if (cap := keywords.get("softcap")) is not None:
        scores = torch.tanh(scores / cap) * cap
    age = torch.arange(tokens)[:, None] - torch.arange(key.shape[2])[None, :] + key.shape[2] - tokens
    hidden = age < 0
    if (window := keywords.get("sliding_window")) is not None:
        hidden = hidden | (age >= window)
    if (chunk := keywords.get("chunk")) is not None:
        keys = torch.arange(key.shape[2])
        hidden = hidden | (keys[-tokens:, None] // chunk != keys[None] // chunk)
    if (slopes := keywords.get("alibi")) is not None:
        scores = scores - torch.tensor(slopes, dtype=scores.dtype)[:, None, None] * age
    scores = scores.masked_fill(hidden, float("-inf"))
    if (sinks := keywords.get("s_aux")) is not None:
        column = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, tokens, 1)
        weights = torch.cat([scores, column.to(scores)], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous()
