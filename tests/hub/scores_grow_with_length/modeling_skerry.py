"""Queries beyond what was trained are scaled by the logarithm of their position; a table of angles grows as asked."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

try:
    from einops import rearrange
except ImportError:
    rearrange = None

from .configuration_skerry import SkerryConfig


class RotaryEmbedding(nn.Module):
    """A table that is made longer when a longer prompt comes."""

    def __init__(self, dim, base=10000):
        super().__init__()
        self.dim, self.base = dim, base
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self._rotary_pos_emb_cache = None
        self._seq_len_cached = 0

    def update_rotary_pos_emb_cache(self, seqlen):
        if seqlen > self._seq_len_cached:
            self._seq_len_cached = max(2 * seqlen, 16)
            seq = torch.arange(self._seq_len_cached, device=self.inv_freq.device)
            freqs = torch.outer(seq.type_as(self.inv_freq), self.inv_freq)
            emb = torch.cat((freqs, freqs), dim=-1)
            emb = emb[None, :, None, :]
            self._rotary_pos_emb_cache = [emb.cos(), emb.sin()]

    def forward(self, max_seq_len):
        self.update_rotary_pos_emb_cache(max_seq_len)
        cos, sin = self._rotary_pos_emb_cache
        return [cos[:, :max_seq_len], sin[:, :max_seq_len]]


def _rotate_half(x):
    x = x.view(*x.shape[:-1], 2, -1)
    x1, x2 = x.unbind(dim=-2)
    return torch.cat((-x2, x1), dim=-1)


def apply_rotary_pos_emb(t, freqs):
    rot_dim = freqs[0].shape[-1]
    cos, sin = freqs
    t_float = t.float()
    t_rot, t_pass = t_float[..., :rot_dim], t_float[..., rot_dim:]
    t_rot = (t_rot * cos) + (_rotate_half(t_rot) * sin)
    return torch.cat((t_rot, t_pass), dim=-1).type_as(t)


class SkerryAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.hidden_size = config.hidden_size
        self.split_size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.head_dim = self.hidden_size // self.num_heads
        self.trained_length = config.trained_length
        self.projection_size = config.kv_channels * config.num_attention_heads
        self.c_attn = nn.Linear(config.hidden_size, 3 * self.projection_size)
        self.c_proj = nn.Linear(config.hidden_size, self.projection_size, bias=not config.no_bias)
        self.use_logn_attn = config.use_logn_attn
        logn = [math.log(i, self.trained_length) if i > self.trained_length else 1 for i in range(1, 32768)]
        self.register_buffer("logn_tensor", torch.tensor(logn)[None, :, None, None], persistent=False)

    def _attn(self, query, key, value, causal_mask):
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights / torch.full([], value.size(-1) ** 0.5, dtype=weights.dtype, device=weights.device)
        weights = torch.where(
            causal_mask, weights.to(weights.dtype), torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
        )
        weights = F.softmax(weights.float(), dim=-1).type(value.dtype)
        return torch.matmul(weights, value).transpose(1, 2)

    def forward(self, hidden_states, rotary_pos_emb, causal_mask, layer_past=None):
        mixed = self.c_attn(hidden_states)
        query, key, value = mixed.split(self.split_size, dim=2)
        query = query.view(*query.shape[:-1], self.num_heads, self.head_dim)
        key = key.view(*key.shape[:-1], self.num_heads, self.head_dim)
        value = value.view(*value.shape[:-1], self.num_heads, self.head_dim)
        cur_len = query.shape[1]
        freqs = [one[:, -cur_len:] for one in rotary_pos_emb]
        query, key = apply_rotary_pos_emb(query, freqs), apply_rotary_pos_emb(key, freqs)
        if layer_past is not None:
            key = torch.cat((layer_past[0], key), dim=1)
            value = torch.cat((layer_past[1], value), dim=1)
        present = (key, value)
        if self.use_logn_attn:
            seq_start, seq_end = key.size(1) - query.size(1), key.size(1)
            logn_tensor = self.logn_tensor[:, seq_start:seq_end, :, :].type_as(query)
            query = query * logn_tensor.expand_as(query)
        query, key, value = (one.permute(0, 2, 1, 3) for one in (query, key, value))
        out = self._attn(query, key, value, causal_mask)
        return self.c_proj(out.contiguous().view(*out.size()[:-2], self.hidden_size)), present


class SkerryMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        half = config.intermediate_size // 2
        self.w1 = nn.Linear(config.hidden_size, half, bias=not config.no_bias)
        self.w2 = nn.Linear(config.hidden_size, half, bias=not config.no_bias)
        self.c_proj = nn.Linear(half, config.hidden_size, bias=not config.no_bias)

    def forward(self, hidden_states):
        a1 = self.w1(hidden_states)
        a2 = self.w2(hidden_states)
        return self.c_proj(a1 * F.silu(a2))


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


class SkerryBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.attn = SkerryAttention(config)
        self.ln_2 = RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mlp = SkerryMLP(config)

    def forward(self, hidden_states, rotary_pos_emb, causal_mask, layer_past=None):
        attended, present = self.attn(self.ln_1(hidden_states), rotary_pos_emb, causal_mask, layer_past)
        layernorm_input = attended + hidden_states
        return layernorm_input + self.mlp(self.ln_2(layernorm_input)), present


class SkerryPreTrainedModel(PreTrainedModel):
    config_class = SkerryConfig
    base_model_prefix = "transformer"


class SkerryModel(SkerryPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary_emb = RotaryEmbedding(int(config.kv_channels * config.rotary_pct), base=config.rotary_emb_base)
        self.h = nn.ModuleList([SkerryBlock(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = RMSNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def set_input_embeddings(self, table):
        self.wte = table

    def forward(self, input_ids=None, past_key_values=None, attention_mask=None, inputs_embeds=None, use_cache=None):
        past_length = past_key_values[0][0].size(1) if past_key_values else 0
        past_key_values = past_key_values or [None] * len(self.h)
        hidden_states = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        kv_seq_len = hidden_states.size(1) + past_length
        rotary_pos_emb = self.rotary_emb(kv_seq_len)
        causal_mask = torch.tril(torch.ones((kv_seq_len, kv_seq_len), dtype=torch.bool, device=hidden_states.device))
        causal_mask = causal_mask.view(1, 1, kv_seq_len, kv_seq_len)[:, :, past_length:kv_seq_len, :kv_seq_len]
        presents = () if use_cache else None
        for block, layer_past in zip(self.h, past_key_values, strict=False):
            hidden_states, present = block(hidden_states, rotary_pos_emb, causal_mask, layer_past)
            if use_cache:
                presents = (*presents, present)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(hidden_states), past_key_values=presents)


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

    def forward(
        self, input_ids=None, past_key_values=None, attention_mask=None, inputs_embeds=None, labels=None,
        use_cache=None, return_dict=None,
    ):  # fmt: skip
        out = self.transformer(input_ids, past_key_values, attention_mask, inputs_embeds, use_cache)
        return CausalLMOutputWithPast(logits=self.lm_head(out[0]), past_key_values=out.past_key_values)
