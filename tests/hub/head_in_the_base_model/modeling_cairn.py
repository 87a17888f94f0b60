"""Tokens come first, then the batch; rotary over half of each head, in pairs; the head lies in the base model."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_cairn import CairnConfig


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.eps)
        return (self.weight * hidden_states).to(dtype)


def apply_rotary(x, table):
    """``x`` is ``[tokens, batch, heads, size]``; half of each head is turned, two neighbours at a time."""
    rot = table.shape[-2] * 2
    x, rest = x[..., :rot], x[..., rot:]
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    cos, sin = table[..., 0], table[..., 1]
    out = torch.stack((pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 1] * cos + pairs[..., 0] * sin), dim=-1)
    return torch.cat((out.flatten(3), rest), dim=-1)


class SelfAttention(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.layer_number = layer_number
        self.heads = config.num_attention_heads
        self.groups = config.multi_query_group_num
        self.size = config.hidden_size // self.heads
        self.query_key_value = nn.Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, rotary):
        tokens, batch, _ = hidden_states.shape
        mixed = self.query_key_value(hidden_states)
        wide, narrow = self.heads * self.size, self.groups * self.size
        query, key, value = mixed.split([wide, narrow, narrow], dim=-1)
        query = apply_rotary(query.view(tokens, batch, self.heads, self.size), rotary)
        key = apply_rotary(key.view(tokens, batch, self.groups, self.size), rotary)
        value = value.view(tokens, batch, self.groups, self.size)
        times = self.heads // self.groups
        key = key.unsqueeze(3).expand(-1, -1, -1, times, -1).reshape(tokens, batch, self.heads, self.size)
        value = value.unsqueeze(3).expand(-1, -1, -1, times, -1).reshape(tokens, batch, self.heads, self.size)
        query, key, value = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        context = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        context = context.permute(2, 0, 1, 3).reshape(tokens, batch, -1)
        return self.dense(context)


class Block(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.self_attention = SelfAttention(config, layer_number)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.dense_h_to_4h = nn.Linear(config.hidden_size, 2 * config.ffn_hidden_size, bias=False)
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, rotary):
        hidden_states = hidden_states + self.self_attention(self.input_layernorm(hidden_states), rotary)
        first, second = torch.chunk(self.dense_h_to_4h(self.post_attention_layernorm(hidden_states)), 2, dim=-1)
        return hidden_states + self.dense_4h_to_h(F.silu(first) * second)


class CairnPreTrainedModel(PreTrainedModel):
    config_class = CairnConfig
    base_model_prefix = "transformer"


class CairnModel(CairnPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Block(config, i + 1) for i in range(config.num_layers)])
        self.final_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding

    def rotary(self, position_ids, dtype):
        size = self.config.hidden_size // self.config.num_attention_heads // 2
        theta = 1.0 / (10000 ** (torch.arange(0, size, 2, device=position_ids.device).float() / size))
        angle = position_ids.transpose(0, 1)[:, :, None, None].float() * theta
        return torch.stack((angle.cos(), angle.sin()), dim=-1).to(dtype)

    def forward(self, input_ids=None, position_ids=None, inputs_embeds=None, use_cache=None, **kwargs):
        hidden_states = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(hidden_states.shape[1], device=hidden_states.device)[None]
        rotary = self.rotary(position_ids, hidden_states.dtype)
        hidden_states = hidden_states.transpose(0, 1).contiguous()
        for layer in self.layers:
            hidden_states = layer(hidden_states, rotary)
        hidden_states = self.final_layernorm(hidden_states)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states.transpose(0, 1))


class CairnForCausalLM(CairnPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = CairnModel(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.transformer.output_layer

    def forward(self, input_ids=None, position_ids=None, use_cache=None, logits_to_keep=0, **kwargs):
        out = self.transformer(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache, **kwargs)
        logits = self.transformer.output_layer(out.last_hidden_state)
        return CausalLMOutputWithPast(logits=logits)
