"""The selective scan: one decay per channel and state element, composed by doubling."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.nn import functional

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported

CHUNK = 64


class SelectiveScan(Kernel):
    """``x, dt, z [batch, channels, tokens]``, ``A [channels, n]``, ``B, C [batch, n, tokens]``.

    ``D, dt_bias [channels]``. The state is ``[channels, n]``: ``h = exp(dt A) h + dt B x``, and
    ``y = (h C + D x) silu(z)``.
    """

    kind = "selective_scan"
    functions = ("selective_scan_fn", "selective_scan")
    tokens: ClassVar = {"x": 2, "dt": 2, "B": 2, "C": 2, "z": 2}
    whole = ("A", "D", "dt_bias")
    needed = frozenset({"x", "dt", "A", "B", "C"})
    aliases: ClassVar = {
        "hidden_states": "x", "u": "x", "delta": "dt", "delta_bias": "dt_bias", "time_proj_bias": "dt_bias",
        "delta_softplus": "dt_softplus", "gate": "z",
    }  # fmt: skip
    usual: ClassVar = {"dt_softplus": False}
    free = frozenset({"use_associative_scan"})
    wants_state = frozenset({"return_last_state"})

    def state(self, operands: Operands) -> tuple[int, ...]:
        a = operands["A"]
        assert a is not None
        return int(a.shape[0]), int(a.shape[1])

    def check(self, bound: Bound) -> None:
        x, b = bound.operands["x"], bound.operands["B"]
        if x.ndim != 3 or b.ndim != 3:
            raise Unsupported(f"an input of {tuple(x.shape)} with B of {tuple(b.shape)}")

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, dt, b, c, z = (operands[name] for name in ("x", "dt", "B", "C", "z"))
        a, skip, bias = operands["A"], operands["D"], operands["dt_bias"]
        assert x is not None
        assert dt is not None
        assert a is not None
        assert b is not None
        assert c is not None
        dt = dt.float() if bias is None else dt.float() + bias.float()[:, None]
        dt = functional.softplus(dt) if settings["dt_softplus"] else dt
        value, state, done = x.float(), state.to(x.float().dtype), []
        for start in range(0, x.shape[2], CHUNK):
            at = slice(start, start + CHUNK)
            decay = (dt[:, :, at, None] * a.float()[:, None]).exp()
            added = (dt[:, :, at] * value[:, :, at])[..., None] * b[:, None, :, at].transpose(2, 3).float()
            states = scan(decay, added, state)
            state = states[:, :, -1]
            done.append(torch.einsum("bdtn,bnt->bdt", states, c[:, :, at].float()))
        out = torch.cat(done, 2) if len(done) > 1 else done[0]
        out = out if skip is None else out + value * skip.float()[:, None]
        return (out if z is None else out * functional.silu(z.float())).to(x.dtype), state


def scan(decay: torch.Tensor, added: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """``h[t] = decay[t] h[t-1] + added[t]`` for all tokens (dimension 2), in as many steps as the count has bits."""
    added = torch.cat([added[:, :, :1] + decay[:, :, :1] * state[:, :, None], added[:, :, 1:]], 2)
    reach, tokens = 1, added.shape[2]
    while reach < tokens:
        joined = added[:, :, reach:] + decay[:, :, reach:] * added[:, :, :-reach]
        added = torch.cat([added[:, :, :reach], joined], 2)
        decay = torch.cat([decay[:, :, :reach], decay[:, :, reach:] * decay[:, :, :-reach]], 2)
        reach *= 2
    return added
