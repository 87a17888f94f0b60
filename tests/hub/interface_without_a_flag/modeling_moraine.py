"""Calls the attention interface and never says so; scales embeddings, residuals and logits."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_moraine import MoraineConfig


def plain_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    key = key.repeat_interleave(module.groups, dim=1)
    value = value.repeat_interleave(module.groups, dim=1)
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def rotate(x, position_ids):
    size = x.shape[-1]
    speed = 10000 ** (-torch.arange(0, size, 2, device=x.device).float() / size)
    angle = position_ids[:, None, :, None].float() * speed
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1).to(x.dtype)


class MoraineAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx, self.is_causal = config, layer_idx, True
        self.size = config.width // config.heads
        self.groups = config.heads // config.kv_heads
        self.k = nn.Linear(config.width, config.kv_heads * self.size)
        self.v = nn.Linear(config.width, config.kv_heads * self.size)
        self.q = nn.Linear(config.width, config.heads * self.size)
        self.o = nn.Linear(config.heads * self.size, config.width)

    def forward(self, x, position_ids, attention_mask, past_key_values):
        parts = (proj(x).view(*x.shape[:-1], -1, self.size).transpose(1, 2) for proj in (self.q, self.k, self.v))
        query, key, value = parts
        query, key = rotate(query, position_ids), rotate(key, position_ids)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        attend = plain_attention
        if self.config._attn_implementation != "eager":
            attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed, _ = attend(self, query, key, value, attention_mask, scaling=1 / math.sqrt(self.size))
        return self.o(mixed.reshape(*x.shape[:-1], -1))


class MoraineLayer(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.attention = MoraineAttention(config, layer_idx)
        self.up, self.gate = (nn.Linear(config.width, config.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(config.inner, config.width, bias=False)
        self.one, self.two = nn.RMSNorm(config.width, eps=1e-5), nn.RMSNorm(config.width, eps=1e-5)
        self.residual = config.scale_depth / math.sqrt(config.depth)

    def forward(self, x, *rest):
        x = x + self.attention(self.one(x), *rest) * self.residual
        y = self.two(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y)) * self.residual


class MorainePreTrainedModel(PreTrainedModel):
    config_class = MoraineConfig
    base_model_prefix = "model"
    _supports_sdpa = True


class MoraineModel(MorainePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(MoraineLayer(config, i) for i in range(config.depth))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None,
                inputs_embeds=None, use_cache=None, **kwargs):  # fmt: skip
        if inputs_embeds is None:
            inputs_embeds = self.embed(input_ids) * self.config.scale_emb
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(inputs_embeds.shape[1], device=inputs_embeds.device)[None] + seen
        mask = create_causal_mask(
            config=self.config, inputs_embeds=inputs_embeds, attention_mask=attention_mask,
            past_key_values=past_key_values, position_ids=position_ids,
        )  # fmt: skip
        x = inputs_embeds
        for layer in self.layers:
            x = layer(x, position_ids, mask, past_key_values)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)


class MoraineForCausalLM(MorainePreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = MoraineModel(config)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, **kwargs):
        out = self.model(input_ids=input_ids, **kwargs)
        logits = self.lm_head(out.last_hidden_state / (self.config.width / self.config.dim_base))
        return CausalLMOutputWithPast(logits=logits.float(), past_key_values=out.past_key_values)
