"""A token shift: every token gets what the one before it had."""

from __future__ import annotations

from typing import ClassVar

import torch

from hfspeed.recurrences.kernel import Kernel, Operands, Settings


class Shift(Kernel):
    """``x [batch, tokens, size]``; the state is the last token's ``[size]``."""

    kind = "shift"
    functions = ("token_shift",)
    tokens: ClassVar = {"x": 1}
    needed = frozenset({"x"})
    exact_state = False

    def state(self, operands: Operands) -> tuple[int, ...]:
        x = operands["x"]
        assert x is not None
        return (int(x.shape[2]),)

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = operands["x"]
        assert x is not None
        seen = torch.cat([state[:, None].to(x.dtype), x], 1)
        return seen[:, :-1], seen[:, -1]
