"""The layers: a transposed projection of its own class, attention in one function, positions nowhere."""

import torch
from torch import nn


class Conv(nn.Module):
    """A linear that keeps its matrix as ``[inputs, outputs]``."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) / 50), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        rows = x.reshape(-1, self.weight.shape[0])
        return torch.addmm(self.bias, rows, self.weight).unflatten(0, x.shape[:-1])


def attend(query, key, value):
    scores = query @ key.mT / query.size(-1) ** 0.5
    before = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    weights = torch.where(before, scores, torch.finfo(scores.dtype).min).softmax(-1)
    return weights @ value


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.ln_1, self.ln_2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.c_attn, self.c_proj = Conv(3 * config.width, config.width), Conv(config.width, config.width)
        self.c_fc, self.c_out = Conv(config.inner, config.width), Conv(config.width, config.inner)
        self.act = nn.GELU(approximate="tanh")

    def forward(self, x):
        batch, tokens, width = x.shape
        query, key, value = self.c_attn(self.ln_1(x)).split(width, dim=2)
        query, key, value = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in (query, key, value))
        mixed = attend(query, key, value).transpose(1, 2).contiguous().view(batch, tokens, -1)
        x = x + self.c_proj(mixed)
        return x + self.c_out(self.act(self.c_fc(self.ln_2(x))))
