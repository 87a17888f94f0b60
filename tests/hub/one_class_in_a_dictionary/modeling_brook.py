"""Everything in one class, its parts in a dictionary of modules; in use it scores the last token alone."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel

from .configuration_brook import BrookConfig


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out = nn.Linear(config.n_embd, config.n_embd)
        self.resid = nn.Dropout(config.dropout)

    def forward(self, x):
        B, T, _ = x.size()
        q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=2))
        rate = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)
        return self.resid(self.out(y.transpose(1, 2).reshape(B, T, -1)))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.before, self.between = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.mixer = Mixer(config)
        self.up, self.down = nn.Linear(config.n_embd, 4 * config.n_embd), nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        x = x + self.mixer(self.before(x))
        return x + self.down(F.gelu(self.up(self.between(x))))


class BrookForCausalLM(PreTrainedModel):
    """It does not say which its table and its head are."""

    config_class = BrookConfig

    def __init__(self, config):
        super().__init__(config)
        blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        table, places = nn.Embedding(config.vocab_size, config.n_embd), nn.Embedding(config.block_size, config.n_embd)
        self.net = nn.ModuleDict({"wte": table, "wpe": places, "drop": nn.Dropout(config.dropout), "h": blocks})
        self.last_norm = nn.LayerNorm(config.n_embd)
        self.to_scores = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def capped(self, scores):
        return self.config.cap * torch.tanh(scores / self.config.cap)

    def forward(self, input_ids, targets=None):
        _, T = input_ids.shape
        assert self.config.block_size >= T, f"{T} tokens, but there are {self.config.block_size} places"
        places = torch.arange(T, device=input_ids.device)
        x = self.net.drop(self.net.wte(input_ids) + self.net.wpe(places))
        for block in self.net.h:
            if self.training and self.config.dropout < 0:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        x = self.last_norm(x)
        if targets is None:
            # only the last token is asked for
            return self.capped(self.to_scores(x[:, [-1], :])), None
        scores = self.capped(self.to_scores(x))
        return scores, F.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-1)
