"""Tokens come first, then the batch; rotary over half of each head, in pairs; the head lies in the base model."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_cairn import CairnConfig


class Norm(nn.Module):
    """The type changes back after the weight."""

    def __init__(self, config):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config.hidden_size)), config.layernorm_epsilon

    def forward(self, x):
        power = x.float().square().mean(dim=-1, keepdim=True)
        return (x * (power + self.eps).rsqrt() * self.weight).to(x.dtype)


def turn(heads, table):
    """``heads`` is ``[tokens, batch, heads, size]``; as many channels as the table has are turned, in neighbours."""
    channels = 2 * table.size(-2)
    pairs = heads[..., :channels].unflatten(-1, (-1, 2))
    cosine, sine = table.unbind(-1)
    left, right = pairs.unbind(-1)
    turned = torch.stack([left * cosine - right * sine, right * cosine + left * sine], dim=-1)
    return torch.cat([turned.flatten(-2), heads[..., channels:]], dim=-1)


class SelfAttention(nn.Module):
    """Queries of all heads, keys of all groups and values of all groups lie behind one another."""

    def __init__(self, config):
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.multi_query_group_num
        self.size = config.hidden_size // self.heads
        self.query_key_value = nn.Linear(config.hidden_size, (self.heads + 2 * self.groups) * self.size)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x, table):
        wide, narrow = self.heads * self.size, self.groups * self.size
        query, key, value = self.query_key_value(x).split([wide, narrow, narrow], dim=-1)
        query = turn(query.unflatten(-1, (-1, self.size)), table)
        key = turn(key.unflatten(-1, (-1, self.size)), table)
        value = value.unflatten(-1, (-1, self.size))
        times = self.heads // self.groups
        key = key.unsqueeze(3).expand(-1, -1, -1, times, -1).flatten(2, 3)
        value = value.unsqueeze(3).expand(-1, -1, -1, times, -1).flatten(2, 3)
        query, key, value = (one.permute(1, 2, 0, 3) for one in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.dense(mixed.permute(2, 0, 1, 3).flatten(2))


class Block(nn.Module):
    """The MLP has no module of its own."""

    def __init__(self, config):
        super().__init__()
        self.self_attention = SelfAttention(config)
        self.input_layernorm, self.post_attention_layernorm = Norm(config), Norm(config)
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)
        self.dense_h_to_4h = nn.Linear(config.hidden_size, 2 * config.ffn_hidden_size, bias=False)

    def forward(self, x, table):
        x = self.self_attention(self.input_layernorm(x), table) + x
        gate, up = self.dense_h_to_4h(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return self.dense_4h_to_h(F.silu(gate) * up) + x


class CairnPreTrainedModel(PreTrainedModel):
    config_class = CairnConfig
    base_model_prefix = "transformer"


class CairnModel(CairnPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.padded_vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.final_layernorm = Norm(config)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding

    def table(self, position_ids, dtype):
        """``[tokens, batch, 1, pairs, 2]``, for a quarter as many pairs as a head has channels."""
        pairs = self.config.hidden_size // self.config.num_attention_heads // 4
        speed = 10000 ** (torch.arange(pairs, device=position_ids.device).float() / -pairs)
        angle = position_ids.t()[..., None, None] * speed
        return torch.stack([angle.cos(), angle.sin()], dim=-1).to(dtype)

    def forward(self, input_ids=None, position_ids=None, inputs_embeds=None, use_cache=None, **others):
        x = inputs_embeds if inputs_embeds is not None else self.embedding(input_ids)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
        table = self.table(position_ids, x.dtype)
        x = x.transpose(0, 1).contiguous()
        for layer in self.layers:
            x = layer(x, table)
        return BaseModelOutputWithPast(last_hidden_state=self.final_layernorm(x).transpose(0, 1))


class CairnForCausalLM(CairnPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = CairnModel(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.transformer.output_layer

    def forward(self, input_ids=None, position_ids=None, use_cache=None, **others):
        found = self.transformer(input_ids, position_ids=position_ids, use_cache=use_cache, **others)
        return CausalLMOutputWithPast(logits=self.transformer.output_layer(found.last_hidden_state))
