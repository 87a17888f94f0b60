"""A causal depthwise convolution: each channel sees its own last inputs."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.nn import functional

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported


class Convolution(Kernel):
    """``x [batch, channels, tokens]``, ``weight [channels, width]``; the state is the last ``width - 1`` inputs."""

    kind = "convolution"
    functions = ("causal_conv1d_fn",)
    tokens: ClassVar = {"x": 2}
    whole = ("weight", "bias")
    needed = frozenset({"x", "weight"})
    aliases: ClassVar = {"hidden_states": "x"}
    usual: ClassVar = {"activation": None}
    wants_state = frozenset({"return_final_states"})
    exact_state = False
    last_first = True
    follows = True

    def state(self, operands: Operands) -> tuple[int, ...]:
        weight = operands["weight"]
        assert weight is not None
        return int(weight.shape[0]), int(weight.shape[1]) - 1

    def check(self, bound: Bound) -> None:
        x, weight = bound.operands["x"], bound.operands["weight"]
        if x.ndim != 3 or weight.ndim != 2 or x.shape[1] != weight.shape[0]:
            raise Unsupported(f"an input of {tuple(x.shape)} with weights of {tuple(weight.shape)}")
        if bound.settings["activation"] not in {None, "silu", "swish"}:
            raise Unsupported(f"the activation {bound.settings['activation']!r}")

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, weight, bias = operands["x"], operands["weight"], operands["bias"]
        assert x is not None
        assert weight is not None
        seen = torch.cat([state.to(x.dtype), x], 2)
        after = seen[:, :, seen.shape[2] - state.shape[2] :]
        wide = seen.to(weight.dtype)
        if x.shape[2] == 1:
            out = (wide * weight).sum(2, keepdim=True)
            out = out if bias is None else out + bias[:, None]
        elif wide.dtype is torch.float64:  # as in proofs; torch has no fast convolution for it
            out = _shifted(wide, weight, x.shape[2])
            out = out if bias is None else out + bias[:, None]
        else:
            out = functional.conv1d(wide, weight[:, None], bias, groups=weight.shape[0])
        return (functional.silu(out) if settings["activation"] else out).to(x.dtype), after


def _shifted(seen: torch.Tensor, weight: torch.Tensor, tokens: int) -> torch.Tensor:
    """The sum of inputs of so many tokens ago, each times its weight."""
    out = seen[:, :, :tokens] * weight[:, :1]
    for at in range(1, weight.shape[1]):
        out = out + seen[:, :, at : at + tokens] * weight[:, at : at + 1]
    return out
