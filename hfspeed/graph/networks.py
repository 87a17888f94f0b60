"""torch's recurrent networks where only shapes matter: torch itself runs them token by token there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

NETWORKS = {"gru", "lstm", "rnn_tanh", "rnn_relu"}
"""Functions of torch's, by name."""

ARGUMENTS = 9
"""``x, state, weights, has biases, layers, dropout, training, both ways, batch first``."""


def by_shape(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What a recurrent network gives on meta; ``None`` for any other call.

    The result is ``[batch, tokens, directions * hidden]`` and the last states, laid out as torch lays them out.
    """
    if getattr(func, "__name__", "") not in NETWORKS or len(args) != ARGUMENTS:
        return None
    x, state, first = args[0], args[1], args[-1]
    if not isinstance(x, torch.Tensor) or not x.is_meta or not isinstance(first, bool):
        return None
    states = state if isinstance(state, list | tuple) else [state]
    # an LSTM's hidden state may be projected, and is then narrower than its cell
    width = states[0].shape[-1] * (2 if args[7] else 1)
    out = x.new_empty(*x.shape[:-1], width)
    return (out, *(one.clone() for one in states))
