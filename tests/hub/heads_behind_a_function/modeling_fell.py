"""Tokens first, then the batch; scores scaled down and up again by the layer; groups of queries made by a function."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_fell import FellConfig


def heads_of(packed, queries, groups):
    """Queries, keys and values of one row, each ``[tokens, batch, its heads, size]``."""
    size = packed.size(-1) // (queries + 2 * groups)
    parts = torch.split(packed, [one * size for one in (queries, groups, groups)], dim=-1)
    return [part.unflatten(-1, (-1, size)) for part in parts]


def once_for_each_query(heads, queries):
    """The same key or value for all queries of a group."""
    groups = heads.size(2)
    wide = heads[:, :, :, None].expand(-1, -1, groups, queries // groups, -1)
    return wide.contiguous().flatten(2, 3)


def turn_pairs(heads, table):
    """Neighbours are a pair; the table, ``[tokens, batch, pairs, 2]``, has no more pairs than half of the head."""
    pairs = table.size(-2)
    moving, resting = heads.split([2 * pairs, heads.size(-1) - 2 * pairs], dim=-1)
    cosine, sine = table[: heads.size(0), :, None].unbind(-1)
    real, imaginary = moving.unflatten(-1, (pairs, 2)).unbind(-1)
    moved = torch.stack((cosine * real - sine * imaginary, sine * real + cosine * imaginary), dim=-1)
    return torch.cat([moved.flatten(-2), resting], dim=-1)


class AngleTable(nn.Module):
    """Nothing is kept: all rows are computed whenever somebody asks."""

    def __init__(self, channels, ratio):
        super().__init__()
        self.channels, self.theta = channels, 10000 * ratio

    def forward(self, rows):
        speed = self.theta ** (-torch.arange(0, self.channels, 2).float() / self.channels)
        angle = torch.arange(rows).float()[:, None] * speed
        return torch.stack((angle.cos(), angle.sin()), dim=-1)


class Norm(nn.Module):
    """The weight is applied before the type changes back."""

    def __init__(self, size, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size))
        nn.init.constant_(self.weight, 1.0)

    def forward(self, x):
        power = x.float().square().mean(-1, keepdim=True)
        return (torch.rsqrt(power + self.eps) * x * self.weight).to(x.dtype)


class Scores(nn.Module):
    """Scores are divided by the number of the layer, so that half precision can hold them, and multiplied in float32."""

    def __init__(self, config, layer_number):
        super().__init__()
        self.times = layer_number if config.apply_query_key_layer_scaling else None
        head = config.hidden_size // config.num_attention_heads
        self.shrink = 1.0 / (head**0.5 * (self.times or 1))

    def forward(self, query, key, value):
        """All are ``[tokens, batch, heads, size]``; batch and heads are one axis in the products."""
        tokens, batch, heads, size = query.shape
        query, key, value = (one.reshape(-1, batch * heads, size).transpose(0, 1) for one in (query, key, value))
        nothing = query.new_empty(batch * heads, tokens, key.size(1))
        scores = torch.baddbmm(nothing, query, key.mT, beta=0.0, alpha=self.shrink)
        if self.times is not None:
            scores = scores.float() * self.times
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu_(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1).to(value.dtype)
        mixed = weights.bmm(value).transpose(0, 1)
        return mixed.reshape(tokens, batch, heads * size)


class SelfAttention(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.queries, self.groups = config.num_attention_heads, config.multi_query_group_num
        width = config.hidden_size
        packed = width + 2 * self.groups * (width // self.queries)
        self.query_key_value = nn.Linear(width, packed, bias=config.add_qkv_bias)
        self.core_attention = Scores(config, layer_number)
        self.dense = nn.Linear(width, width, bias=False)

    def forward(self, x, table):
        query, key, value = heads_of(self.query_key_value(x), self.queries, self.groups)
        query, key = (turn_pairs(one, table) for one in (query, key))
        key, value = (once_for_each_query(one, self.queries) for one in (key, value))
        return self.dense(self.core_attention(query, key, value))


class MLP(nn.Module):
    """The activation is a function that stands in the module as an attribute."""

    def __init__(self, config):
        super().__init__()
        self.dense_4h_to_h = nn.Linear(config.ffn_hidden_size, config.hidden_size, bias=False)
        self.dense_h_to_4h = nn.Linear(config.hidden_size, 2 * config.ffn_hidden_size, bias=False)

        def gated(both):
            gate, up = both.chunk(2, dim=-1)
            return up * nn.functional.silu(gate)

        self.act = gated

    def forward(self, x):
        return self.dense_4h_to_h(self.act(self.dense_h_to_4h(x)))


class FellBlock(nn.Module):
    def __init__(self, config, layer_number):
        super().__init__()
        self.self_attention, self.mlp = SelfAttention(config, layer_number), MLP(config)
        self.input_layernorm = Norm(config.hidden_size, config.layernorm_epsilon)
        self.post_attention_layernorm = Norm(config.hidden_size, config.layernorm_epsilon)

    def forward(self, x, table):
        x = self.self_attention(self.input_layernorm(x), table) + x
        return self.mlp(self.post_attention_layernorm(x)) + x


class FellEncoder(nn.Module):
    """Layers are asked for by their number, in a method that a subclass could change."""

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList(FellBlock(config, number) for number in range(1, config.num_layers + 1))
        self.final_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layernorm_epsilon)

    def layer(self, number):
        return self.layers[number]

    def forward(self, x, table):
        for number in range(len(self.layers)):
            x = self.layer(number)(x, table)
        return self.final_layernorm(x)


class TokensFirst(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.padded_vocab_size, config.hidden_size)

    def forward(self, input_ids):
        return self.word_embeddings(input_ids.t())


class FellPreTrainedModel(PreTrainedModel):
    config_class = FellConfig
    base_model_prefix = "transformer"


class FellModel(FellPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        half = config.hidden_size // config.num_attention_heads // 2
        self.embedding, self.angles = TokensFirst(config), AngleTable(half, config.rope_ratio)
        self.encoder = FellEncoder(config)
        self.output_layer = nn.Linear(config.hidden_size, config.padded_vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.embedding.word_embeddings

    def forward(self, input_ids, position_ids=None, inputs_embeds=None, **others):
        x = self.embedding(input_ids) if inputs_embeds is None else inputs_embeds
        table = self.angles(self.config.seq_length)
        table = table[: x.size(0), None] if position_ids is None else table[position_ids].transpose(0, 1)
        return BaseModelOutputWithPast(last_hidden_state=self.encoder(x, table))


class FellForCausalLM(FellPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = FellModel(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.transformer.output_layer

    def forward(self, input_ids=None, position_ids=None, last_only=False, **others):
        x = self.transformer(input_ids, position_ids=position_ids, **others).last_hidden_state
        scores = self.transformer.output_layer(x[-1:] if last_only else x)
        return CausalLMOutputWithPast(logits=scores.transpose(0, 1))
