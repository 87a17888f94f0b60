"""Tokens first, then the batch; scores scaled down and up again by the layer; groups of queries made by a function."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn import LayerNorm
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_fell import FellConfig


def split_heads(mixed, heads, groups, size):
    """Query, key and value of one packed projection."""
    query, key, value = mixed.split([heads * size, groups * size, groups * size], dim=-1)
    query = query.view((*query.size()[:-1], heads, size))
    key = key.view((*key.size()[:-1], groups, size))
    value = value.view((*value.size()[:-1], groups, size))
    return query, key, value


def apply_rotary_pos_emb(x, rope_cache):
    """x: [tokens, batch, heads, size]; the first part of each head is turned, in neighbouring pairs."""
    sq, _, heads, _ = x.shape
    rot_dim = rope_cache.shape[-2] * 2
    x, x_pass = x[..., :rot_dim], x[..., rot_dim:]
    rope_cache = rope_cache[:sq]
    xshaped = x.reshape(sq, -1, heads, rot_dim // 2, 2)
    rope_cache = rope_cache.view(sq, -1, 1, xshaped.size(3), 2)
    turned = torch.stack(
        [
            xshaped[..., 0] * rope_cache[..., 0] - xshaped[..., 1] * rope_cache[..., 1],
            xshaped[..., 1] * rope_cache[..., 0] + xshaped[..., 0] * rope_cache[..., 1],
        ],
        -1,
    )
    return torch.cat((turned.flatten(3), x_pass), dim=-1)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, rope_ratio=1):
        super().__init__()
        self.dim, self.rope_ratio = dim, rope_ratio

    def forward(self, max_seq_len):
        base = 10000 * self.rope_ratio
        theta = 1.0 / (base ** (torch.arange(0, self.dim, 2, dtype=torch.float) / self.dim))
        seq_idx = torch.arange(max_seq_len, dtype=torch.float)
        idx_theta = torch.outer(seq_idx, theta)
        return torch.stack([torch.cos(idx_theta), torch.sin(idx_theta)], dim=-1)


class RMSNorm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        nn.init.ones_(self.weight)
        self.eps = eps

    def forward(self, hidden_states):
        kind = hidden_states.dtype
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return (self.weight * hidden_states * torch.rsqrt(variance + self.eps)).to(kind)


class CoreAttention(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.layer_number = max(1, layer_number)
        size = config.hidden_size // config.num_attention_heads
        self.norm_factor = math.sqrt(size)
        self.coeff = None
        if config.apply_query_key_layer_scaling:
            self.coeff = self.layer_number
            self.norm_factor *= self.coeff

    def forward(self, query, key, value):
        tokens, batch, heads, size = query.shape
        output_size = (batch, heads, tokens, key.size(0))
        query = query.view(output_size[2], output_size[0] * output_size[1], -1)
        key = key.view(output_size[3], output_size[0] * output_size[1], -1)
        empty = torch.empty(batch * heads, tokens, key.size(0), dtype=query.dtype, device=query.device)
        scores = torch.baddbmm(
            empty, query.transpose(0, 1), key.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=1.0 / self.norm_factor
        )
        scores = scores.view(*output_size)
        if self.coeff is not None:
            scores = scores.float() * self.coeff
        mask = torch.ones(output_size[2], output_size[3], device=scores.device, dtype=torch.bool).tril_()
        scores = scores.masked_fill(~mask, float("-inf"))
        probs = F.softmax(scores, dim=-1).type_as(value)
        value = value.view(value.size(0), output_size[0] * output_size[1], -1)
        probs = probs.view(output_size[0] * output_size[1], output_size[2], -1)
        context = torch.bmm(probs, value.transpose(0, 1))
        context = context.view(batch, heads, tokens, size).permute(2, 0, 1, 3).contiguous()
        return context.view(tokens, batch, heads * size)


class SelfAttention(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.heads = config.num_attention_heads
        self.groups = config.multi_query_group_num
        self.size = config.hidden_size // self.heads
        packed = config.hidden_size + 2 * self.groups * self.size
        self.query_key_value = nn.Linear(config.hidden_size, packed, bias=config.add_qkv_bias)
        self.core_attention = CoreAttention(config, layer_number)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, rotary_pos_emb):
        mixed = self.query_key_value(hidden_states)
        query, key, value = split_heads(mixed, self.heads, self.groups, self.size)
        query = apply_rotary_pos_emb(query, rotary_pos_emb)
        key = apply_rotary_pos_emb(key, rotary_pos_emb)
        many = self.heads // self.groups
        key = key.unsqueeze(-2).expand(-1, -1, -1, many, -1).contiguous().view(*key.shape[:2], self.heads, self.size)
        value = value.unsqueeze(-2).expand(-1, -1, -1, many, -1).contiguous()
        value = value.view(*value.shape[:2], self.heads, self.size)
        return self.dense(self.core_attention(query, key, value))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.ffn_hidden_size * 2, bias=False)

        def swiglu(x):
            x = torch.chunk(x, 2, dim=-1)
            return F.silu(x[0]) * x[1]

        self.activation_func = swiglu
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states):
        return self.dense_4h_to_h(self.activation_func(self.dense_h_to_4h(hidden_states)))


class FellBlock(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.layernorm_epsilon)
        self.self_attention = SelfAttention(config, layer_number)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.layernorm_epsilon)
        self.mlp = MLP(config)

    def forward(self, hidden_states, rotary_pos_emb):
        attended = self.self_attention(self.input_layernorm(hidden_states), rotary_pos_emb)
        layernorm_input = hidden_states + attended
        return layernorm_input + self.mlp(self.post_attention_layernorm(layernorm_input))


class FellTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_layers = config.num_layers
        self.layers = nn.ModuleList([FellBlock(config, i + 1) for i in range(self.num_layers)])
        self.final_layernorm = LayerNorm(config.hidden_size, eps=config.layernorm_epsilon)

    def _get_layer(self, layer_number):
        return self.layers[layer_number]

    def forward(self, hidden_states, rotary_pos_emb):
        for index in range(self.num_layers):
            layer = self._get_layer(index)
            hidden_states = layer(hidden_states, rotary_pos_emb)
        return self.final_layernorm(hidden_states)


class Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.padded_vocab_size, config.hidden_size)

    def forward(self, input_ids):
        return self.word_embeddings(input_ids).transpose(0, 1).contiguous()


class FellPreTrainedModel(PreTrainedModel):
    config_class = FellConfig
    base_model_prefix = "transformer"


class FellModel(FellPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embedding = Embedding(config)
        self.seq_length = config.seq_length
        self.rotary_pos_emb = RotaryEmbedding(config.hidden_size // config.num_attention_heads // 2, config.rope_ratio)
        self.encoder = FellTransformer(config)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding.word_embeddings

    def forward(self, input_ids, position_ids=None, inputs_embeds=None, **kwargs):
        _batch, tokens = input_ids.shape
        if inputs_embeds is None:
            inputs_embeds = self.embedding(input_ids)
        rotary_pos_emb = self.rotary_pos_emb(self.seq_length)
        rotary_pos_emb = rotary_pos_emb[position_ids] if position_ids is not None else rotary_pos_emb[None, :tokens]
        rotary_pos_emb = rotary_pos_emb.transpose(0, 1).contiguous()
        hidden_states = self.encoder(inputs_embeds, rotary_pos_emb)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states)


class FellForCausalLM(FellPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = FellModel(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.transformer.output_layer

    def forward(self, input_ids=None, position_ids=None, return_last_logit=False, **kwargs):
        out = self.transformer(input_ids=input_ids, position_ids=position_ids, **kwargs)
        hidden_states = out[0]
        if return_last_logit:
            hidden_states = hidden_states[-1:]
        logits = self.transformer.output_layer(hidden_states)
        return CausalLMOutputWithPast(logits=logits.transpose(0, 1).contiguous())
