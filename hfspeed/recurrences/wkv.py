"""Weighted key-value averages: each channel averages values, weighted by keys that decay, in log space."""

from __future__ import annotations

from typing import ClassVar

import torch

from hfspeed.recurrences.kernel import Bound, Kernel, Operands, Settings, Unsupported

CHUNK = 32


class WeightedKeyValue(Kernel):
    """``k, v [batch, tokens, channels]``, ``time_decay, time_first [channels]``.

    The average of ``v`` with weights ``exp(k)``, each decayed by ``exp(time_decay)`` per token, and the own one raised
    by ``time_first``. The state is ``[3, channels]``: numerator and denominator, both scaled, and the scale's log.
    """

    kind = "wkv"
    functions = ("wkv",)
    telling = frozenset({"time_decay", "time_first", "key", "value"})
    tokens: ClassVar = {"v": 1, "k": 1}
    whole = ("time_decay", "time_first")
    needed = frozenset({"k", "v", "time_decay", "time_first"})
    aliases: ClassVar = {"key": "k", "value": "v"}
    wants_state = frozenset({"return_state"})
    always_pair = True
    by_heads = False

    def state(self, operands: Operands) -> tuple[int, ...]:
        v = operands["v"]
        assert v is not None
        return 3, int(v.shape[2])

    def check(self, bound: Bound) -> None:
        v, k = bound.operands["v"], bound.operands["k"]
        if v.ndim != 3 or v.shape != k.shape:
            raise Unsupported(f"keys of {tuple(k.shape)} with values of {tuple(v.shape)}")

    def run(self, operands: Operands, settings: Settings, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v, k, decay, first = (operands[name] for name in ("v", "k", "time_decay", "time_first"))
        assert v is not None
        assert k is not None
        assert decay is not None
        assert first is not None
        keys, values, state, done = k.float(), v.float(), state.to(v.float().dtype), []
        rate = decay.float().exp()
        for start in range(0, v.shape[1], CHUNK):
            at = slice(start, start + CHUNK)
            out, state = _chunk(keys[:, at], values[:, at], rate, first.float(), state)
            done.append(out)
        return torch.cat(done, 1).to(v.dtype), state


def _chunk(
    k: torch.Tensor, v: torch.Tensor, rate: torch.Tensor, first: torch.Tensor, state: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Some tokens of each sequence: the state is one more pair of key and value, older than all of them."""
    tokens = k.shape[1]
    number = torch.arange(tokens + 1, device=k.device)
    # what token t (or the state behind the last one) sees of each pair: how long ago, and whether at all
    age = (number[:, None] - number[None, :-1] - 1)[..., None]
    logs = torch.cat([state[:, 2][:, None, None] - rate * number[:, None, None], k[:, None] - rate * age], 2)
    unseen = torch.cat([torch.zeros_like(age[:, :1]), age < 0], 1).bool()
    logs = logs.masked_fill(unseen, float("-inf"))
    own = torch.cat([k + first, torch.full_like(k[:, :1], float("-inf"))], 1)
    top = torch.maximum(logs.amax(2), own)
    weights, mine = (logs - top[:, :, None]).exp(), (own - top).exp()
    ends = torch.cat([v, torch.zeros_like(v[:, :1])], 1)
    above = torch.cat([state[:, 0, None], v], 1)
    below = torch.cat([state[:, 1, None], torch.ones_like(v)], 1)
    numerator = (weights * above[:, None]).sum(2) + mine * ends
    denominator = (weights * below[:, None]).sum(2) + mine
    after = torch.stack([numerator[:, -1], denominator[:, -1], top[:, -1]], 1)
    return numerator[:, :-1] / denominator[:, :-1], after
