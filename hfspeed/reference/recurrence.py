"""A stateful function over packed sequences: one after the other, each from where its state is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hfspeed.plan import History, Recurrence
from hfspeed.plan.shares import own_state
from hfspeed.recurrences import kernel_of
from hfspeed.recurrences.call import Called, Turn
from hfspeed.recurrences.history import Inputs, joined
from hfspeed.reference.packing import Packing


class Recurring(nn.Module):
    """What the author's module calls; the states of its sequences are in the packing."""

    def __init__(self, op: Recurrence, packing: Packing, ranks: int = 1) -> None:
        super().__init__()
        self.called, self.packing, self.turn = Called(op, kernel_of(op.kind)), packing, Turn(op.calls)
        self.shape = own_state(op, ranks)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """As the author's function, for ``[1, …]`` with the sequences of the packing side by side."""
        operands, number = self.called.operands(args, keywords), self.turn.next()
        kernel, like = self.called.kernel, self.called.kernel.like(operands)
        empty = like.new_zeros(self.shape, dtype=self.called.dtype(like.dtype))
        if not self.packing.segments:
            states = empty.expand(like.shape[0], *empty.shape)
            out = kernel.run(operands, self.called.settings, states)[0]
            return self.called.result(kernel.room(operands).copy_(out))
        name, start, done = f"{self.called.op.path}.{self.called.op.name}.{number}", 0, []
        for one in self.packing.segments:
            mine = {role: self._cut(role, value, start, one.tokens) for role, value in operands.items()}
            known = self.packing.state(name, one.sequence)
            state = empty[None] if known is None else known
            out, state = kernel.run(mine, self.called.settings, state)
            self.packing.keep_state(name, one.sequence, state)
            done.append(out)
            start += one.tokens
        if start != like.shape[kernel.axis] or like.shape[0] != 1:
            raise ValueError(f"{name}: a row of {tuple(like.shape)}, expected {start} tokens")
        return self.called.result(kernel.room(operands).copy_(torch.cat(done, kernel.axis)))

    def _cut(self, role: str, value: torch.Tensor | None, start: int, tokens: int) -> torch.Tensor | None:
        dim = self.called.kernel.tokens.get(role)
        return value if value is None or dim is None else value.narrow(dim, start, tokens)


class Remembering:
    """A module's forward, which is run on all tokens of each sequence; what it was given is in the packing."""

    def __init__(self, op: History, forward: Callable[..., Any], packing: Packing) -> None:
        self.op, self.forward, self.packing = op, forward, packing

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the author's forward, for the tokens of the row."""
        if not self.packing.segments:
            return self.forward(*args, **kwargs)
        inputs, start, done = Inputs(self.op, args, kwargs), 0, []
        for one in self.packing.segments:
            whole = []
            for number, (dim, value) in enumerate(inputs.new(start, one.tokens)):
                name = f"{self.op.path}.{number}"
                known = self.packing.state(name, one.sequence)
                whole.append(value if known is None else torch.cat([known, value], dim))
                self.packing.keep_state(name, one.sequence, whole[-1])
            done.append(inputs.run(self.forward, whole, one.tokens))
            start += one.tokens
        return joined(self.op, done)
