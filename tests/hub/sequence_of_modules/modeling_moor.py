"""Attention and MLP side by side; one packed projection, rotary written into it; a package's kernels where it is there."""

import math

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.activations import ACT2FN
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_moor import MoorConfig

try:
    from flash_attn.layers.rotary import RotaryEmbedding as FlashRotaryEmbedding
    from flash_attn.modules.mha import FlashSelfAttention
except ImportError:
    FlashRotaryEmbedding = None
    FlashSelfAttention = None


def _apply_rotary_emb_qkv(qkv, cos, sin):
    _, seqlen, _three, _, _headdim = qkv.shape
    rotary_dim = cos.shape[-1] * 2
    q_rot, q_pass = qkv[:, :, 0, :, :rotary_dim], qkv[:, :, 0, :, rotary_dim:]
    k_rot, k_pass = qkv[:, :, 1, :, :rotary_dim], qkv[:, :, 1, :, rotary_dim:]
    q1, q2 = q_rot.chunk(2, dim=-1)
    k1, k2 = k_rot.chunk(2, dim=-1)
    c, s = cos[:seqlen, None, :], sin[:seqlen, None, :]
    q1, q2, k1, k2, c, s = [t.to(dtype=torch.float32) for t in [q1, q2, k1, k2, c, s]]
    q_rot = torch.cat([q1 * c - q2 * s, q1 * s + q2 * c], axis=-1).to(qkv.dtype)
    k_rot = torch.cat([k1 * c - k2 * s, k1 * s + k2 * c], axis=-1).to(qkv.dtype)
    return torch.cat(
        [
            torch.cat([q_rot, q_pass], axis=-1).unsqueeze(2),
            torch.cat([k_rot, k_pass], axis=-1).unsqueeze(2),
            qkv[:, :, 2:3, :, :],
        ],
        axis=2,
    )


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        self.dim, self.base = dim, float(base)
        inv_freq = 1.0 / (self.base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)
        self._seq_len_cached = 0
        self._cos_cached = None
        self._sin_cached = None

    def _update_cos_sin_cache(self, seqlen, device, dtype):
        if seqlen > self._seq_len_cached or self._cos_cached.device != device or self._cos_cached.dtype != dtype:
            self._seq_len_cached = seqlen
            t = torch.arange(seqlen, device=device, dtype=torch.float32)
            freqs = torch.outer(t, self.inv_freq.to(device))
            self._cos_cached = torch.cos(freqs).to(dtype)
            self._sin_cached = torch.sin(freqs).to(dtype)

    def forward(self, qkv, seqlen_offset=0):
        self._update_cos_sin_cache(qkv.shape[1] + seqlen_offset, qkv.device, qkv.dtype)
        return _apply_rotary_emb_qkv(qkv, self._cos_cached[seqlen_offset:], self._sin_cached[seqlen_offset:])


class SelfAttention(nn.Module):
    def __init__(self, causal=True, softmax_scale=None):
        super().__init__()
        self.causal = causal
        self.softmax_scale = softmax_scale
        self.drop = nn.Dropout(0.0)

    def forward(self, qkv, causal=None):
        seqlen = qkv.shape[1]
        q, k, v = qkv.unbind(dim=2)
        q, k = q.to(torch.float32), k.to(torch.float32)
        causal = self.causal if causal is None else causal
        softmax_scale = self.softmax_scale or 1.0 / math.sqrt(q.shape[-1])
        scores = torch.einsum("bthd,bshd->bhts", q, k * softmax_scale)
        if causal:
            causal_mask = torch.triu(torch.full((seqlen, seqlen), -10000.0, device=scores.device), 1)
            scores = scores + causal_mask.to(dtype=scores.dtype)
        attention = torch.softmax(scores, dim=-1).to(v.dtype)
        attention = self.drop(attention)
        return torch.einsum("bhts,bshd->bthd", attention, v)


class MHA(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.rotary_dim = config.rotary_dim
        rotary = FlashRotaryEmbedding if config.flash_attn and FlashRotaryEmbedding is not None else RotaryEmbedding
        self.rotary_emb = rotary(self.rotary_dim)
        self.n_head = config.n_head
        self.head_dim = config.n_embd // self.n_head
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out_proj = nn.Linear(config.n_embd, config.n_embd)
        attention = FlashSelfAttention if config.flash_attn and FlashSelfAttention is not None else SelfAttention
        self.inner_attn = attention(causal=True)

    def forward(self, x):
        qkv = self.Wqkv(x)
        qkv = qkv.view(*qkv.shape[:-1], 3, -1, self.head_dim)
        if self.rotary_dim > 0:
            qkv = self.rotary_emb(qkv)
        context = self.inner_attn(qkv)
        return self.out_proj(context.flatten(2))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = config.n_inner or 4 * config.n_embd
        self.fc1 = nn.Linear(config.n_embd, inner)
        self.fc2 = nn.Linear(inner, config.n_embd)
        self.act = ACT2FN["gelu_new"]

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class ParallelBlock(nn.Module):
    def __init__(self, config, block_idx=None):
        super().__init__()
        self.ln = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.resid_dropout = nn.Dropout(0.0)
        self.block_idx = block_idx
        self.mixer = MHA(config)
        self.mlp = MLP(config)

    def forward(self, x):
        residual = x
        x = self.ln(x)
        attended = self.resid_dropout(self.mixer(x))
        return attended + self.resid_dropout(self.mlp(x)) + residual


class Embedding(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)

    def forward(self, input_ids):
        return self.wte(input_ids.view(-1, input_ids.size()[-1]))


class CausalLMHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.linear = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, x):
        return self.linear(self.ln(x)).to(torch.float32)


class MoorPreTrainedModel(PreTrainedModel):
    config_class = MoorConfig
    base_model_prefix = "transformer"


class MoorModel(MoorPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embd = Embedding(config)
        self.h = nn.ModuleList([ParallelBlock(config, block_idx=i) for i in range(config.n_layer)])
        self.post_init()

    def get_input_embeddings(self):
        return self.embd.wte

    def set_input_embeddings(self, table):
        self.embd.wte = table

    def forward(self, input_ids, past_key_values=None, attention_mask=None):
        hidden_states = self.embd(input_ids)
        for layer in self.h:
            hidden_states = layer(hidden_states)
        return hidden_states


class MoorForCausalLM(MoorPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer = MoorModel(config)
        self.lm_head = CausalLMHead(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head.linear

    def set_output_embeddings(self, head):
        self.lm_head.linear = head

    def forward(self, input_ids, past_key_values=None, attention_mask=None, labels=None, **kwargs):
        hidden_states = self.transformer(input_ids, past_key_values=past_key_values, attention_mask=attention_mask)
        return CausalLMOutputWithPast(logits=self.lm_head(hidden_states), past_key_values=past_key_values)
