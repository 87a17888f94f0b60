"""The base of the rope grows with the longest prompt in the batch."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_glacier import GlacierConfig


class GlacierNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)).to(dtype)


class GlacierRotary(nn.Module):
    """The base is scaled by how far the prompt goes beyond what was trained (dynamic NTK)."""

    def __init__(self, dim, base, trained):
        super().__init__()
        self.dim, self.base, self.trained = dim, base, trained

    def forward(self, x, position_ids):
        longest = int(position_ids.max()) + 1
        base = self.base
        if longest > self.trained:
            base = base * (2 * longest / self.trained - 1) ** (self.dim / (self.dim - 2))
        inv_freq = 1.0 / (base ** (torch.arange(0, self.dim, 2, device=x.device).float() / self.dim))
        angle = position_ids[..., None].float() * inv_freq
        angle = torch.cat((angle, angle), dim=-1)[:, None]
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def turn(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class GlacierAttention(nn.Module):
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


class GlacierFeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w13 = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        up, gate = self.w13(x).chunk(2, dim=-1)
        return self.w2(F.silu(gate) * up)


class GlacierBlock(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.attention = GlacierAttention(config, layer_idx)
        self.feed_forward = GlacierFeedForward(config)
        self.attention_norm = GlacierNorm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = GlacierNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, cos, sin, past_key_value=None):
        x = x + self.attention(self.attention_norm(x), cos, sin, past_key_value)
        return x + self.feed_forward(self.ffn_norm(x))


class GlacierPreTrainedModel(PreTrainedModel):
    config_class = GlacierConfig
    base_model_prefix = "model"
    _supports_sdpa = True


class GlacierModel(GlacierPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([GlacierBlock(config, i) for i in range(config.num_hidden_layers)])
        self.norm = GlacierNorm(config.hidden_size, config.rms_norm_eps)
        head_dim = config.hidden_size // config.num_attention_heads
        self.rotary = GlacierRotary(head_dim, config.rope_base, config.max_position_embeddings)
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


class GlacierForCausalLM(GlacierPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = GlacierModel(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.output

    def forward(self, input_ids=None, **kwargs):
        out = self.model(input_ids=input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.output(out.last_hidden_state), past_key_values=out.past_key_values)
