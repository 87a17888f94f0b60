"""What chosen experts give, in plain torch: the measure for everything that serves them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch
import torch.nn.functional as F

from hfspeed.plan import ExpertAct, Experts

ACTS: Final[dict[ExpertAct, Callable[[torch.Tensor, float], torch.Tensor]]] = {
    "silu": lambda x, alpha: x * torch.sigmoid(alpha * x),
    "gelu": lambda x, _: F.gelu(x),
    "gelu_tanh": lambda x, _: F.gelu(x, approximate="tanh"),
    "relu2": lambda x, _: F.relu(x).square(),
    "relu": lambda x, _: F.relu(x),
}


def computed(op: Experts, tensors: Mapping[str, torch.Tensor], x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """What each chosen expert gives, before weights: ``[tokens, top_k, inputs]``.

    Args:
        op: says how; its ``path``, ``takes`` and ``weighs_input`` are not read.
        tensors: parameters by name.
        x: ``[tokens, top_k, inputs]``.
        ids: ``[tokens, top_k]``, each below ``count``.
    """

    def through(names: tuple[str, ...], biases: tuple[str, ...], value: torch.Tensor) -> torch.Tensor:
        parts = [torch.einsum("tki,tkio->tko", value, _matrix(op, tensors[name])[ids]) for name in names]
        if biases:
            parts = [part + tensors[name][ids] for part, name in zip(parts, biases, strict=True)]
        return torch.cat(parts, -1)

    hidden = between(op, through(op.up, op.up_bias, x))
    return through((op.down,), (op.down_bias,) if op.down_bias else (), hidden)


def between(op: Experts, value: torch.Tensor) -> torch.Tensor:
    """From gate and up ``[..., 2 * inner]``, or up alone, to what down reads: ``[..., inner]``."""
    if not op.gated:
        up = value if op.limit is None else value.clamp(max=op.limit)
        return ACTS[op.act](up, op.alpha)
    halves = (value[..., ::2], value[..., 1::2]) if op.interleaved else value.chunk(2, -1)
    gate, up = halves[::-1] if op.swapped else halves
    if op.limit is not None:
        gate, up = gate.clamp(max=op.limit), up.clamp(-op.limit, op.limit)
    return ACTS[op.act](gate, op.alpha) * (up + op.beta if op.beta else up)


def _matrix(op: Experts, tensor: torch.Tensor) -> torch.Tensor:
    """``[count, inputs, outputs]``."""
    return tensor if op.turned else tensor.transpose(1, 2)
