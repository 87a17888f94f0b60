"""Queries beyond what was trained are scaled by the logarithm of their position; a table of angles grows as asked."""

import math

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_skerry import SkerryConfig

MOST = 32767


def sharpness(trained):
    """One factor for each position: 1 up to what was trained, then the logarithm to that base."""
    factors = torch.ones(MOST)
    factors[trained:] = torch.arange(trained + 1, MOST + 1, dtype=torch.float64).log().div(math.log(trained)).float()
    return factors


class GrowingTable(nn.Module):
    """Cosines and sines of as many positions as were ever asked for, and as many again; kept in a plain attribute."""

    def __init__(self, channels, theta):
        super().__init__()
        speed = theta ** (torch.arange(channels // 2) * (-2.0 / channels))
        self.register_buffer("speed", speed, persistent=False)
        self.written, self.both = 0, ()

    def forward(self, positions):
        if positions > self.written:
            self.written = max(16, positions + positions)
            steps = torch.arange(self.written, device=self.speed.device).to(self.speed.dtype)
            angles = steps[None, :, None, None] * self.speed
            angles = torch.cat([angles] * 2, dim=-1)
            self.both = (angles.cos(), angles.sin())
        return tuple(one[:, :positions] for one in self.both)


def quarter_turn(x):
    """The second half of the channels, negated, before the first."""
    first, second = x.unflatten(-1, (2, -1)).unbind(-2)
    return torch.cat((second.neg(), first), -1)


def rotated(heads, cosine, sine):
    """``[batch, tokens, heads, size]``; channels that the table is too narrow for pass."""
    wide = heads.float()
    inside, outside = wide.tensor_split([cosine.shape[-1]], dim=-1)
    inside = quarter_turn(inside) * sine + inside * cosine
    return torch.cat([inside, outside], dim=-1).to(heads.dtype)


class SkerryAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.size = config.num_attention_heads, config.kv_channels
        self.width = self.heads * self.size
        self.sharpen = config.use_logn_attn
        self.c_attn = nn.Linear(config.hidden_size, 3 * self.width)
        self.c_proj = nn.Linear(self.width, config.hidden_size, bias=not config.no_bias)
        self.register_buffer("factors", sharpness(config.trained_length).view(1, -1, 1, 1), persistent=False)

    def mix(self, query, key, value, seen):
        """Scores are divided by a tensor, and what is not seen has the lowest number that there is."""
        scores = query @ key.transpose(2, 3)
        scores = scores / scores.new_full((), math.sqrt(self.size))
        lowest = scores.new_full((), torch.finfo(scores.dtype).min)
        weights = torch.where(seen, scores, lowest).softmax(dim=-1, dtype=torch.float32)
        return (weights.to(value.dtype) @ value).transpose(1, 2)

    def forward(self, x, angles, seen, past=None):
        query, key, value = (part.unflatten(2, (self.heads, -1)) for part in self.c_attn(x).split(self.width, dim=2))
        latest = [table[:, -x.shape[1] :] for table in angles]
        query, key = (rotated(part, *latest) for part in (query, key))
        if past is not None:
            key, value = (torch.cat(pair, dim=1) for pair in zip(past, (key, value), strict=True))
        if self.sharpen:
            last = key.shape[1]
            factors = self.factors[:, last - x.shape[1] : last].to(query.dtype)
            query = query * factors.expand_as(query)
        mixed = self.mix(*(part.transpose(1, 2) for part in (query, key, value)), seen)
        return self.c_proj(mixed.reshape(*x.shape[:-1], self.width)), (key, value)


class SkerryMLP(nn.Module):
    """The configuration counts gate and up together."""

    def __init__(self, config):
        super().__init__()
        sizes, bias = (config.hidden_size, config.intermediate_size // 2), not config.no_bias
        self.w1, self.w2 = nn.Linear(*sizes, bias=bias), nn.Linear(*sizes, bias=bias)
        self.c_proj = nn.Linear(*reversed(sizes), bias=bias)

    def forward(self, x):
        return self.c_proj(nn.functional.silu(self.w2(x)) * self.w1(x))


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config.hidden_size)), config.layer_norm_epsilon

    def of_length_one(self, x):
        return x * (x.square().mean(dim=-1, keepdim=True) + self.eps).rsqrt()

    def forward(self, x):
        return self.weight * self.of_length_one(x.float()).to(x.dtype)


class SkerryBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = Norm(config), Norm(config)
        self.attn, self.mlp = SkerryAttention(config), SkerryMLP(config)

    def forward(self, x, angles, seen, past=None):
        mixed, present = self.attn(self.ln_1(x), angles, seen, past)
        x = x + mixed
        return x + self.mlp(self.ln_2(x)), present


class SkerryPreTrainedModel(PreTrainedModel):
    config_class = SkerryConfig
    base_model_prefix = "transformer"


class SkerryModel(SkerryPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.angles = GrowingTable(round(config.rotary_pct * config.kv_channels), config.rotary_emb_base)
        self.h = nn.ModuleList(SkerryBlock(config) for _ in range(config.num_hidden_layers))
        self.ln_f = Norm(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def set_input_embeddings(self, table):
        self.wte = table

    def forward(self, input_ids=None, past_key_values=None, attention_mask=None, inputs_embeds=None, use_cache=None):
        x = inputs_embeds if inputs_embeds is not None else self.wte(input_ids)
        pasts = past_key_values or (None,) * len(self.h)
        first = pasts[0][0].shape[1] if past_key_values else 0
        last = first + x.shape[1]
        angles = self.angles(last)
        seen = torch.ones(1, 1, last, last, dtype=torch.bool, device=x.device).tril()[:, :, first:]
        presents = []
        for block, past in zip(self.h, pasts, strict=True):
            x, present = block(x, angles, seen, past)
            presents.append(present)
        kept = tuple(presents) if use_cache else None
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(x), past_key_values=kept)


class SkerryLMHeadModel(SkerryPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = SkerryModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, head):
        self.lm_head = head

    def forward(self, input_ids=None, past_key_values=None, attention_mask=None, inputs_embeds=None, labels=None,
                use_cache=None):  # fmt: skip
        found = self.transformer(input_ids, past_key_values, attention_mask, inputs_embeds, use_cache)
        scores = self.lm_head(found.last_hidden_state)
        loss = None if labels is None else self.loss_function(scores, labels, self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=scores, past_key_values=found.past_key_values)
