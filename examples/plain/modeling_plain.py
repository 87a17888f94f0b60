"""A decoder without hints, in other spellings: everything has to be found in the code."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_plain import PlainConfig


class Scale(nn.Module):
    """A root-mean-square norm that divides by a square root; its weight is kept around zero."""

    def __init__(self, size, epsilon):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(size))
        self.epsilon = epsilon

    def forward(self, x):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = y / torch.sqrt((y * y).mean(dim=-1, keepdim=True) + self.epsilon)
        return (y * (1.0 + self.offset)).to(x.dtype)


def turned(x, positions, theta):
    """Rotate neighbouring channels of every head (even and odd ones, not halves) by their position."""
    size = x.shape[-1]
    speed = theta ** (-torch.arange(0, size, 2, device=x.device, dtype=torch.float32) / size)
    angle = positions[:, None, :, None].to(torch.float32) * speed
    sin, cos = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def slow_attention(module, query, key, value, attention_mask, scaling, **kwargs):
    """Attention in plain torch."""
    key = key.repeat_interleave(module.num_key_value_groups, 1)
    value = value.repeat_interleave(module.num_key_value_groups, 1)
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    probabilities = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return torch.einsum("bhqk,bhkd->bqhd", probabilities, value), probabilities


class Mixer(nn.Module):
    """Attention with a norm on each query and key head."""

    is_causal = True

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.num_key_value_groups = config.heads // config.kv_heads
        self.wq = nn.Linear(config.width, config.heads * config.head_dim)
        self.wk = nn.Linear(config.width, config.kv_heads * config.head_dim)
        self.wv = nn.Linear(config.width, config.kv_heads * config.head_dim)
        self.wo = nn.Linear(config.heads * config.head_dim, config.width, bias=False)
        self.query_scale = Scale(config.head_dim, config.epsilon)
        self.key_scale = Scale(config.head_dim, config.epsilon)

    def forward(self, stream, positions, mask=None, memory=None, **kwargs):
        batch, tokens, _ = stream.shape
        size = self.config.head_dim
        value = self.wv(stream).reshape(batch, tokens, -1, size).transpose(1, 2)
        key = self.wk(stream).reshape(batch, tokens, -1, size)
        query = self.wq(stream).reshape(batch, tokens, -1, size)
        query = self.query_scale(query).transpose(1, 2)
        key = self.key_scale(key).transpose(1, 2)
        query = turned(query, positions, self.config.theta)
        key = turned(key, positions, self.config.theta)
        if memory is not None:
            key, value = memory.update(key, value, self.layer_idx)
        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)
        mixed, _ = run(self, query, key, value, mask, scaling=size**-0.5, **kwargs)
        return self.wo(mixed.reshape(batch, tokens, -1))


class Expand(nn.Module):
    """A gated feed-forward block, one step a line."""

    def __init__(self, config):
        super().__init__()
        self.w1 = nn.Linear(config.width, config.inner, bias=False)
        self.w2 = nn.Linear(config.inner, config.width, bias=False)
        self.w3 = nn.Linear(config.width, config.inner, bias=False)

    def forward(self, stream):
        opened = self.w1(stream)
        opened = F.silu(opened)
        passed = self.w3(stream)
        gated = passed * opened
        return self.w2(gated)


class Block(nn.Module):
    """One layer."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.before = Scale(config.width, config.epsilon)
        self.mixer = Mixer(config, layer_idx)
        self.between = Scale(config.width, config.epsilon)
        self.expand = Expand(config)

    def forward(self, stream, positions, mask=None, memory=None, **kwargs):
        stream = self.mixer(self.before(stream), positions, mask=mask, memory=memory, **kwargs) + stream
        return self.expand(self.between(stream)) + stream


class PlainPreTrainedModel(PreTrainedModel):
    """What every class with these weights shares."""

    config_class = PlainConfig
    base_model_prefix = "decoder"
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_attention_backend = True

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, Scale):
            nn.init.zeros_(module.offset)


class PlainModel(PlainPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config, index) for index in range(config.depth))
        self.after = Scale(config.width, config.epsilon)
        self.post_init()

    def get_input_embeddings(self):
        return self.table

    def set_input_embeddings(self, value):
        self.table = value

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        **kwargs,
    ):
        stream = self.table(input_ids) if inputs_embeds is None else inputs_embeds
        if (self.config.use_cache if use_cache is None else use_cache) and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(seen, seen + stream.shape[1], device=stream.device)[None]
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=stream,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        for block in self.blocks:
            stream = block(stream, position_ids, mask=mask, memory=past_key_values, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=self.after(stream), past_key_values=past_key_values)


class PlainForCausalLM(PlainPreTrainedModel, GenerationMixin):
    """The decoder with its head; the logits are scaled."""

    def __init__(self, config):
        super().__init__(config)
        self.decoder = PlainModel(config)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.head

    def set_output_embeddings(self, value):
        self.head = value

    def forward(self, input_ids=None, labels=None, logits_to_keep=0, **kwargs):
        output = self.decoder(input_ids=input_ids, **kwargs)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.head(output.last_hidden_state[:, kept]) * self.config.logit_scale
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=output.past_key_values)


__all__ = ["PlainForCausalLM", "PlainModel", "PlainPreTrainedModel"]
