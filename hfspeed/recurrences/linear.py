"""A linear recurrence of single numbers: each channel decays by what its token says, and gets its input added."""

from __future__ import annotations

from typing import ClassVar

import torch

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported
from hfspeed.recurrences.selective import scan

CHUNK = 128


class LinearRecurrence(Kernel):
    """``x, gate [batch, tokens, channels]``, ``reset [batch, tokens, 1]``: ``h = gate h + x``, ``y = h``.

    A reset forgets what was before. The state is ``[channels]``.
    """

    kind = "linear_recurrence"
    functions = ("rnn_scan", "_rnn_scan")
    tokens: ClassVar = {"x": 1, "gate": 1, "reset": 1}
    needed = frozenset({"x", "gate"})
    aliases: ClassVar = {"hidden_states": "x", "recurrent_gate": "gate", "a": "gate"}
    usual: ClassVar = {}
    free = frozenset({"acc_dtype"})
    always_pair = True

    def state(self, operands: Operands) -> tuple[int, ...]:
        x = operands["x"]
        assert x is not None
        return (int(x.shape[2]),)

    def check(self, bound: Bound) -> None:
        x, gate = bound.operands["x"], bound.operands["gate"]
        if x.ndim != 3 or gate.shape != x.shape:
            raise Unsupported(f"an input of {tuple(x.shape)} with gates of {tuple(gate.shape)}")

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, gate, reset = operands["x"], operands["gate"], operands["reset"]
        assert x is not None
        assert gate is not None
        gate = gate if reset is None else gate * ~reset
        state, done = state.to(x.float().dtype), []
        for start in range(0, x.shape[1], CHUNK):
            at = slice(start, start + CHUNK)
            decay, added = (value[:, at].float().transpose(1, 2)[..., None] for value in (gate, x))
            out = scan(decay, added, state[..., None])[..., 0].transpose(1, 2)
            state = out[:, -1]
            done.append(out)
        return torch.cat(done, 1).to(x.dtype), state
