"""One projection for a group of queries, its key and its value; packed gate and up; NTK-scaled rope; no flag at all."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_quarry import QuarryConfig


class QuarryNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)).to(dtype)


class QuarryRotary(nn.Module):
    """The base is scaled once, so that longer texts fit (NTK)."""

    def __init__(self, dim, base, ntk):
        super().__init__()
        base = base * ntk ** (dim / (dim - 2))
        self.register_buffer("inv_freq", 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim)), persistent=False)

    def forward(self, x, position_ids):
        angle = position_ids[..., None].float() * self.inv_freq
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class QuarryAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_dim = config.hidden_size // self.heads
        self.groups = self.heads // self.kv_heads
        self.wqkv = nn.Linear(config.hidden_size, (self.heads + 2 * self.kv_heads) * self.head_dim, bias=False)
        self.wo = nn.Linear(self.heads * self.head_dim, config.hidden_size, bias=False)

    def forward(self, x, cos, sin, past_key_value=None):
        batch, length, _ = x.shape
        qkv = self.wqkv(x).view(batch, length, -1, 2 + self.groups, self.head_dim)
        query = qkv[..., : self.groups, :].flatten(2, 3).transpose(1, 2)
        key = qkv[..., -2, :].transpose(1, 2)
        value = qkv[..., -1, :].transpose(1, 2)
        query, key = turn(query, cos, sin), turn(key, cos, sin)
        if past_key_value is not None:
            key, value = past_key_value.update(key, value, self.layer_idx)
        key = key.repeat_interleave(self.groups, dim=1)
        value = value.repeat_interleave(self.groups, dim=1)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class QuarryFeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w13 = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        up, gate = self.w13(x).chunk(2, dim=-1)
        return self.w2(F.silu(gate) * up)


class QuarryBlock(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.attention = QuarryAttention(config, layer_idx)
        self.feed_forward = QuarryFeedForward(config)
        self.attention_norm = QuarryNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = QuarryNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, cos, sin, past_key_value=None):
        x = x + self.attention(self.attention_norm(x), cos, sin, past_key_value)
        return x + self.feed_forward(self.ffn_norm(x))


class QuarryPreTrainedModel(PreTrainedModel):
    config_class = QuarryConfig
    base_model_prefix = "model"
    _supports_sdpa = True


class QuarryModel(QuarryPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([QuarryBlock(config, i) for i in range(config.num_hidden_layers)])
        self.norm = QuarryNorm(config.hidden_size, config.rms_norm_eps)
        head_dim = config.hidden_size // config.num_attention_heads
        self.rotary = QuarryRotary(head_dim, config.rope_base, config.rope_ntk)
        self.post_init()

    def get_input_embeddings(self):
        return self.tok_embeddings

    def forward(self, input_ids=None, position_ids=None, past_key_values=None, inputs_embeds=None, **kwargs):
        x = self.tok_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(seen, seen + x.shape[1], device=x.device)[None]
        cos, sin = self.rotary(x, position_ids)
        for layer in self.layers:
            x = layer(x, cos, sin, past_key_values)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)


class QuarryForCausalLM(QuarryPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = QuarryModel(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.output

    def forward(self, input_ids=None, **kwargs):
        out = self.model(input_ids=input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.output(out.last_hidden_state), past_key_values=out.past_key_values)
