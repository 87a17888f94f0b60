"""Attention as authors of own models write it: in a function of the file, as the library's files have it."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

MASK = torch.ones(6, 6, dtype=torch.bool).tril()


def repeat_kv(states: torch.Tensor, times: int) -> torch.Tensor:
    batch, heads, tokens, size = states.shape
    return states[:, :, None].expand(batch, heads, times, tokens, size).reshape(batch, heads * times, tokens, size)


def attend(module: nn.Module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    key_states = repeat_kv(key, module.groups)
    value_states = repeat_kv(value, module.groups)
    weights = torch.matmul(query, key_states.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights.masked_fill(~attention_mask, torch.finfo(weights.dtype).min)
    weights = functional.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value_states)
    return output.transpose(1, 2).contiguous(), weights


def plain(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


def mixed(q, k, v, mask):
    scores = ((q + v) @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class Projecting(nn.Module):
    groups = 1

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(16, 32), nn.Linear(16, 32 // self.groups)
        self.v, self.o = nn.Linear(16, 32 // self.groups), nn.Linear(32, 16)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return tuple(part(x).view(1, 6, -1, 8).transpose(1, 2) for part in (self.q, self.k, self.v))  # type: ignore[return-value]


class Grouped(Projecting):
    groups = 2

    def forward(self, x):
        q, k, v = self.heads(x)
        output, weights = attend(self, q, k, v, MASK, scaling=0.3)
        return self.o(output.reshape(1, 6, -1)), weights


class Plain(Projecting):
    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(plain(q, k, v=v, mask=MASK).transpose(1, 2).reshape(1, 6, -1))


class Mixed(Projecting):
    def forward(self, x):
        q, k, v = self.heads(x)
        return self.o(mixed(q, k, v, MASK).transpose(1, 2).reshape(1, 6, -1))


class Root(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x)
