"""The gated delta rule: a state of key-value pairs that decays, per head or per key element, and is corrected."""

from __future__ import annotations

from typing import ClassVar

import torch

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported, heads_of

CHUNK = 64
EPS = 1e-6
"""What libraries add to a sum of squares before they take its root."""
FINE = 16
"""Tokens at once where every key element has a decay of its own: pairs of tokens then have one each."""


class GatedDelta(Kernel):
    """``q, k [batch, tokens, heads, key]``, ``v [batch, tokens, heads, value]``, ``g`` log decays, ``beta`` per head.

    The state is ``[heads, key, value]``: ``S = exp(g) S``, then ``S = S + k beta (v - k S)``, and ``y = q S``.
    """

    kind = "gated_delta"
    functions: ClassVar[tuple[str, ...]] = (
        "chunk_gated_delta_rule",
        "fused_recurrent_gated_delta_rule",
        "recurrent_gated_delta_rule",
    )
    tokens: ClassVar = {"v": 1, "q": 1, "k": 1, "g": 1, "beta": 1}
    needed = frozenset({"q", "k", "v", "g", "beta"})
    aliases: ClassVar = {"query": "q", "key": "k", "value": "v"}
    usual: ClassVar = {"use_qk_l2norm_in_kernel": False, "scale": None}
    free = frozenset({"chunk_size"})
    wants_state = frozenset({"output_final_state"})
    always_pair = True
    last_first = True

    def state(self, operands: Operands) -> tuple[int, ...]:
        k, v = operands["k"], operands["v"]
        assert k is not None
        assert v is not None
        return int(v.shape[2]), int(k.shape[3]), int(v.shape[3])

    def check(self, bound: Bound) -> None:
        k, v, g = (bound.operands[name] for name in ("k", "v", "g"))
        if k.ndim != 4 or v.ndim != 4 or v.shape[2] % k.shape[2]:
            raise Unsupported(f"keys of {tuple(k.shape)} with values of {tuple(v.shape)}")
        self.decays(g, v)

    def decays(self, g: torch.Tensor, v: torch.Tensor) -> None:
        """Raise unless there is one decay per head."""
        if g.shape != v.shape[:3]:
            raise Unsupported(f"decays of {tuple(g.shape)} for {v.shape[2]} heads")

    def _prepared(self, operands: Operands, settings: Settings) -> tuple[torch.Tensor, ...]:
        """Query, key, value, decay and rate in float32, ``[batch, heads, tokens, …]``; queries scaled."""
        found = [operands[name] for name in ("q", "k", "v", "g", "beta")]
        q, k, v, g, beta = (_wide(value) for value in found)
        heads = v.shape[1]
        if settings["use_qk_l2norm_in_kernel"]:
            q, k = _unit(q), _unit(k)
        q = heads_of(q, heads, 1) * (k.shape[-1] ** -0.5 if settings["scale"] is None else settings["scale"])
        return q, heads_of(k, heads, 1), v, g if g.ndim == 4 else g[..., None], beta

    def advance(
        self, operands: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor
    ) -> torch.Tensor:
        """As every kernel's; on a CPU one state after the other, each of which stays in its cache meanwhile."""
        q, k, v, g, beta = self._prepared(operands, settings)
        if states.device.type != "cpu" or states.dtype != v.dtype:
            return super().advance(operands, settings, states, pages)
        decay, out = g[:, :, 0, :, None].exp(), torch.empty_like(v)
        for number, page in enumerate(pages.tolist()):
            state = states[page].mul_(decay[number])
            wrong = torch.baddbmm(v[number], k[number], state, alpha=-1).mul_(beta[number, :, :, None])
            state.addcmul_(k[number].transpose(1, 2), wrong)
            torch.bmm(q[number], state, out=out[number])
        given = operands["v"]
        assert given is not None
        return out.transpose(1, 2).to(given.dtype)

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, g, beta = self._prepared(operands, settings)
        fine = g.shape[-1] > 1
        state, done = state.to(v.dtype), []
        step = FINE if fine else CHUNK
        for start in range(0, v.shape[2], step):
            at = slice(start, start + step)
            out, state = _chunk(q[:, :, at], k[:, :, at], v[:, :, at], g[:, :, at], beta[:, :, at], state)
            done.append(out)
        whole = torch.cat(done, 2) if len(done) > 1 else done[0]
        given = operands["v"]
        assert given is not None
        return whole.transpose(1, 2).to(given.dtype), state


class FineGatedDelta(GatedDelta):
    """The same with a decay for every key element: ``g [batch, tokens, heads, key]``."""

    kind = "fine_gated_delta"
    last_first = False
    functions = ("chunk_kda", "fused_recurrent_kda")

    def decays(self, g: torch.Tensor, v: torch.Tensor) -> None:
        if g.ndim != 4 or g.shape[:3] != v.shape[:3]:
            raise Unsupported(f"decays of {tuple(g.shape)} for {v.shape[2]} heads")


def _wide(value: torch.Tensor | None) -> torch.Tensor:
    """In float32, heads before tokens."""
    assert value is not None
    return value.float().transpose(1, 2)


def _unit(value: torch.Tensor) -> torch.Tensor:
    return value * torch.rsqrt(value.square().sum(-1, keepdim=True) + EPS)


def _chunk(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, g: torch.Tensor, beta: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some tokens of each sequence at once; ``g [batch, heads, tokens, 1 or key]``."""
    tokens = v.shape[2]
    if tokens == 1:
        state = state * g[:, :, 0, :, None].exp()
        wrong = (v[:, :, 0] - torch.einsum("bhkv,bhk->bhv", state, k[:, :, 0])) * beta
        state = state + k[:, :, 0, :, None] * wrong[:, :, None]
        return torch.einsum("bhkv,bhk->bhv", state, q[:, :, 0])[:, :, None], state
    since = g.cumsum(2)
    faded = beta[..., None] * k
    mixed = _pairs(faded, k, since).tril(-1)
    # every correction depends on those before it: a triangular system instead of a loop over tokens
    told = torch.cat([v * beta[..., None], faded * since.exp()], -1)
    solved = torch.linalg.solve_triangular(mixed, told, upper=False, unitriangular=True)
    own, reads = solved.split([v.shape[-1], k.shape[-1]], -1)
    corrected = own - reads @ state
    out = (q * since.exp()) @ state + _pairs(q, k, since).tril() @ corrected
    left = (since[:, :, -1:] - since).exp()
    state = state * since[:, :, -1].exp()[..., None] + (k * left).transpose(2, 3) @ corrected
    return out, state


def _pairs(one: torch.Tensor, other: torch.Tensor, since: torch.Tensor) -> torch.Tensor:
    """``one[i] · other[j]`` with what decays between ``j`` and ``i``; only ``j <= i`` has a meaning."""
    tokens = one.shape[2]
    later = torch.ones(tokens, tokens, dtype=torch.bool, device=one.device).triu(1)[..., None]
    between = (since[:, :, :, None] - since[:, :, None]).masked_fill(later, float("-inf")).exp()
    if since.shape[-1] == 1:
        return (one @ other.transpose(2, 3)) * between[..., 0]
    return torch.einsum("bhik,bhjk,bhijk->bhij", one, other, between)
