"""A plain module inside makes the scores, by a head of several modules; its layers run more than once."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_gill import GillConfig


class Answer(NamedTuple):
    scores: torch.Tensor
    loss: torch.Tensor | None


def turn(x, circle):
    """The function cuts the table, whoever hands it over."""
    angles = circle[: x.shape[-2]]
    left, right = x.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads, self.size = config.heads, config.kv_heads, config.dim // config.heads
        self.q = nn.Linear(config.dim, config.heads * self.size, bias=False)
        self.k = nn.Linear(config.dim, config.kv_heads * self.size, bias=False)
        self.v = nn.Linear(config.dim, config.kv_heads * self.size, bias=False)
        self.o = nn.Linear(config.heads * self.size, config.dim, bias=False)
        speed = 10000.0 ** (-torch.arange(0, self.size, 2).float() / self.size)
        self.register_buffer("circle", torch.arange(config.longest)[:, None] * speed, persistent=False)

    def forward(self, x):
        B, T, _ = x.shape
        q = self.q(x).view(B, T, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(B, T, self.kv_heads, self.size).transpose(1, 2)
        v = self.v(x).view(B, T, self.kv_heads, self.size).transpose(1, 2)
        q, k = turn(q, self.circle), turn(k, self.circle)
        times = self.heads // self.kv_heads
        k, v = k.repeat_interleave(times, dim=1), v.repeat_interleave(times, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        hidden = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(B, T, -1))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first, self.second = nn.RMSNorm(config.dim, eps=1e-6), nn.RMSNorm(config.dim, eps=1e-6)
        self.mixer = Mixer(config)
        self.gate, self.up = (nn.Linear(config.dim, config.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(config.inner, config.dim, bias=False)

    def forward(self, x):
        x = x + self.mixer(self.first(x))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Gill(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.words = nn.Embedding(config.vocab_size, config.dim)
        self.stack = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.head = nn.Sequential(nn.RMSNorm(config.dim, eps=1e-6), nn.Linear(config.dim, config.vocab_size))

    def scored(self, hidden):
        return self.head(hidden) * self.config.dim**-0.5

    def forward(self, idx, rounds, targets=None):
        if idx.shape[1] > self.config.longest:
            raise ValueError("the prompt is too long")
        x, kept = self.words(idx), []
        for _ in range(rounds):
            for block in self.stack:
                x = block(x)
            kept.append(x)
        scores = self.scored(x)
        loss = None if targets is None else F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        return Answer(scores, loss)


class GillForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = GillConfig

    def __init__(self, config):
        super().__init__(config)
        self.inside = Gill(config)
        self.warmth = nn.Parameter(torch.full((1,), 0.7))
        self.post_init()

    def get_input_embeddings(self):
        return self.inside.words

    def get_output_embeddings(self):
        return self.inside.head

    def forward(self, input_ids, attention_mask=None, labels=None, **others):
        answer = self.inside(input_ids, self.config.rounds, labels)
        return CausalLMOutput(loss=answer.loss, logits=answer.scores / self.warmth)
