"""Attention is that of a package, and of nothing else."""

import torch
from flash_attn import flash_attn_func
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_fjord import FjordConfig


class Conv(nn.Module):
    """A linear that keeps its matrix as ``[inputs, outputs]``."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) / 50), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        rows = x.reshape(-1, self.weight.shape[0])
        return torch.addmm(self.bias, rows, self.weight).unflatten(0, x.shape[:-1])


def attend(query, key, value):
    parts = (part.transpose(1, 2) for part in (query, key, value))
    return flash_attn_func(*parts, causal=True).transpose(1, 2)


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


class FjordPreTrainedModel(PreTrainedModel):
    config_class = FjordConfig
    base_model_prefix = "transformer"


class FjordModel(FjordPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.width)
        self.wpe = nn.Embedding(config.longest, config.width)
        self.h = nn.ModuleList([Block(config) for _ in range(config.depth)])
        self.ln_f = nn.LayerNorm(config.width)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids=None, inputs_embeds=None, **kwargs):
        x = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        x = x + self.wpe(torch.arange(x.shape[1], device=x.device))
        for block in self.h:
            x = block(x)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(x))


class FjordForCausalLM(FjordPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.transformer = FjordModel(config)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids=None, **kwargs):
        out = self.transformer(input_ids=input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.lm_head(out.last_hidden_state))
