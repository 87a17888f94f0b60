"""The scan of state-space duality: one decay per head, so that a stretch of tokens is a few products of matrices."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.nn import functional

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported, heads_of

CHUNK, LONG_CHUNK = 32, 128
"""Tokens at once: few on a CPU, where what they give one another costs more than passing on a state."""


class StateSpaceDuality(Kernel):
    """``x [batch, tokens, heads, size]``, ``dt [batch, tokens, heads]``, ``A [heads]``.

    ``B, C [batch, tokens, groups, n]``. The state is ``[heads, size, n]``: ``h = exp(dt A) h + dt x B``, and
    ``y = h C + D x``.
    """

    kind = "ssd"
    functions = ("mamba_chunk_scan_combined", "mamba_chunk_scan")
    tokens: ClassVar = {"x": 1, "dt": 1, "B": 1, "C": 1}
    whole = ("A", "D", "dt_bias")
    needed = frozenset({"x", "dt", "A", "B", "C"})
    aliases: ClassVar = {"hidden_states": "x"}
    usual: ClassVar = {"dt_softplus": False, "dt_limit": (0.0, float("inf"))}
    free = frozenset({"chunk_size", "state_dtype"})
    wants_state = frozenset({"return_final_states"})

    def state(self, operands: Operands) -> tuple[int, ...]:
        x, b = operands["x"], operands["B"]
        assert x is not None
        assert b is not None
        return int(x.shape[2]), int(x.shape[3]), int(b.shape[3])

    def check(self, bound: Bound) -> None:
        x, a, d = bound.operands["x"], bound.operands["A"], bound.operands["D"]
        if x.ndim != 4 or a.ndim != 1 or a.shape[0] != x.shape[2]:
            raise Unsupported(f"values of {tuple(x.shape)} with decays of {tuple(a.shape)}")
        if x.shape[2] % bound.operands["B"].shape[2]:
            raise Unsupported(f"{x.shape[2]} heads in {bound.operands['B'].shape[2]} groups")
        if d is not None and d.shape not in {x.shape[2:3], x.shape[2:4]}:
            raise Unsupported(f"a skip of {tuple(d.shape)} for {x.shape[2]} heads")

    def steps(self, dt: torch.Tensor, bias: torch.Tensor | None, settings: Settings) -> torch.Tensor:
        """How long each step is, in float32, as the libraries make it of ``dt``."""
        dt = dt if bias is None else dt + bias.to(dt.dtype)
        dt = functional.softplus(dt) if settings["dt_softplus"] else dt
        return dt.clamp(*settings["dt_limit"]).float()

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, dt, b, c = (operands[name] for name in ("x", "dt", "B", "C"))
        a, skip, bias = operands["A"], operands["D"], operands["dt_bias"]
        assert x is not None
        assert dt is not None
        assert a is not None
        assert b is not None
        assert c is not None
        given = x.dtype
        dt = self.steps(dt, bias, settings)
        value, b, c = x.float(), b.float(), c.float()
        moved, decay = value * dt[..., None], a.float() * dt
        state = state.to(value.dtype)
        done = []
        step = CHUNK if x.is_cpu else LONG_CHUNK
        for start in range(0, x.shape[1], step):
            piece = slice(start, start + step)
            out, state = _chunk(moved[:, piece], decay[:, piece], b[:, piece], c[:, piece], state)
            done.append(out)
        result = torch.cat(done, 1) if len(done) > 1 else done[0]
        if skip is not None:
            result = result + value * (skip if skip.ndim == 2 else skip[:, None]).float()
        return result.to(given), state


def _chunk(
    moved: torch.Tensor, decay: torch.Tensor, b: torch.Tensor, c: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some tokens of each sequence at once: what they give one another, and what the state gives them."""
    if moved.shape[1] == 1:
        b, c = (heads_of(value, moved.shape[2], 2) for value in (b, c))
        state = state * decay[:, 0].exp()[..., None, None] + moved[:, 0, :, :, None] * b[:, 0, :, None]
        return torch.einsum("bhpn,bhn->bhp", state, c[:, 0])[:, None], state
    tokens, groups = moved.shape[1], b.shape[2]
    since, moved = decay.cumsum(1).transpose(1, 2), moved.transpose(1, 2)
    b, c = (value.transpose(1, 2)[:, :, None] for value in (b, c))  # one for all heads of a group
    between = since[..., :, None] - since[..., None, :]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=moved.device).triu(1)
    weights = _grouped(between.masked_fill(later, float("-inf")).exp(), groups) * (c @ b.transpose(3, 4))
    seen = c @ _grouped(state, groups).transpose(3, 4)
    out = weights.flatten(1, 2) @ moved + seen.flatten(1, 2) * since.exp()[..., None]
    left = moved * (since[..., -1:] - since).exp()[..., None]
    added = _grouped(left, groups).transpose(3, 4) @ b
    return out.transpose(1, 2), state * since[..., -1].exp()[..., None, None] + added.flatten(1, 2)


def _grouped(value: torch.Tensor, groups: int) -> torch.Tensor:
    """``[batch, heads, …]`` as ``[batch, groups, heads of each, …]``."""
    return value.reshape(value.shape[0], groups, -1, *value.shape[2:])
