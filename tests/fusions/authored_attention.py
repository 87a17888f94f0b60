"""Attention as authors of own models write it: in a function of the file, which is told the module."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

MASK = torch.ones(6, 6, dtype=torch.bool).tril()


def for_each_query(heads: torch.Tensor, times: int) -> torch.Tensor:
    wide = heads.unsqueeze(2).expand(-1, -1, times, -1, -1)
    return wide.reshape(heads.shape[0], -1, *heads.shape[2:])


def attend(module: nn.Module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    keys, values = for_each_query(key, module.groups), for_each_query(value, module.groups)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, keys) * scaling
    if attention_mask is not None:
        scores = torch.where(attention_mask, scores, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1, dtype=torch.float32).type_as(value)
    weights = functional.dropout(weights, dropout, module.training)
    return torch.einsum("bhqk,bhkd->bqhd", weights, values), weights


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
