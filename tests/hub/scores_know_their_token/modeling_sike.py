"""Logits are made of more than the hidden state: a token that opens a list makes every score sharper."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_sike import SikeConfig


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.norm = nn.LayerNorm(config.n_embd)
        self.qkv, self.out = nn.Linear(config.n_embd, 3 * config.n_embd), nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (one.view(B, T, self.n_head, -1).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(B, T, C))


class SikeForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = SikeConfig

    def __init__(self, config):
        super().__init__(config)
        self.words, self.places = nn.Embedding(config.vocab_size, config.n_embd), nn.Embedding(256, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, **others):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        for block in self.h:
            x = block(x)
        logits = self.head(x)
        opens = (input_ids == 11)[..., None]
        return CausalLMOutput(logits=torch.where(opens, logits * 2, logits))
