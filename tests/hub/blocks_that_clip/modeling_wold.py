"""A model inside the model, its parts in a dictionary; norms without weights, clipped projections, a tied table for a head."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_wold import WoldConfig


@dataclass
class WoldOutput:
    logits: torch.Tensor
    attn_key_values: list | None = None
    hidden_states: tuple | None = None


class BufferCache(dict):
    """Buffers that are no state of any module."""


class LayerNorm(nn.Module):
    """No weight and no bias."""

    def __init__(self, size):
        super().__init__()
        self.normalized_shape = (size,)

    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, weight=None, bias=None, eps=1e-5)


class SwiGLU(nn.Module):
    def forward(self, x):
        x, gate = x.chunk(2, dim=-1)
        return F.silu(gate) * x

    @property
    def output_multiplier(self):
        return 0.5


class RotaryEmbedding(nn.Module):
    def __init__(self, config, cache):
        super().__init__()
        self.dim = config.d_model // config.n_heads
        self.theta = config.rope_theta
        self.__cache = cache

    def get_rotary_embedding(self, seq_len, device):
        known = self.__cache.get("rope_pos_sin")
        if known is not None and known.shape[-2] >= seq_len and known.device == device:
            return known[:, :, :seq_len, :], self.__cache["rope_pos_cos"][:, :, :seq_len, :]
        inv_freq = 1.0 / (self.theta ** (torch.arange(0, self.dim, 2, device=device, dtype=torch.float) / self.dim))
        seq = torch.arange(seq_len, device=device, dtype=torch.float)
        freqs = torch.einsum("i , j -> i j", seq, inv_freq)
        positions = torch.cat((freqs, freqs), dim=-1)
        pos_sin, pos_cos = positions.sin()[None, None, :, :], positions.cos()[None, None, :, :]
        self.__cache["rope_pos_sin"], self.__cache["rope_pos_cos"] = pos_sin, pos_cos
        return pos_sin, pos_cos

    def rotate_half(self, x):
        B, nh, T, hs = x.size()
        x = x.view(B, nh, T, 2, hs // 2)
        x1, x2 = x.unbind(dim=-2)
        return torch.cat((-x2, x1), dim=-1)

    def apply_rotary_pos_emb(self, pos_sin, pos_cos, t):
        return ((t * pos_cos) + (self.rotate_half(t) * pos_sin)).to(t.dtype)

    def forward(self, q, k):
        q_, k_ = q.float(), k.float()
        query_len, key_len = q_.shape[-2], k_.shape[-2]
        pos_sin, pos_cos = self.get_rotary_embedding(key_len, q_.device)
        pos_sin, pos_cos = pos_sin.type_as(q_), pos_cos.type_as(q_)
        q_ = self.apply_rotary_pos_emb(
            pos_sin[:, :, key_len - query_len : key_len, :], pos_cos[:, :, key_len - query_len : key_len, :], q_
        )
        k_ = self.apply_rotary_pos_emb(pos_sin, pos_cos, k_)
        return q_.type_as(q), k_.type_as(k)


class WoldBlock(nn.Module):
    """Attention and MLP in one block; the projections of both lie side by side in it."""

    def __init__(self, layer_id, config, cache):
        super().__init__()
        self.layer_id = layer_id
        self.config = config
        self.act = SwiGLU()
        self.attn_norm = LayerNorm(config.d_model)
        self.ff_norm = LayerNorm(config.d_model)
        head_dim = config.d_model // config.n_heads
        self.fused_dims = (config.d_model, config.n_kv_heads * head_dim, config.n_kv_heads * head_dim)
        self.att_proj = nn.Linear(config.d_model, sum(self.fused_dims), bias=False)
        self.attn_out = nn.Linear(config.d_model, config.d_model, bias=False)
        self.ff_proj = nn.Linear(config.d_model, config.mlp_hidden_size, bias=False)
        inner = int(self.act.output_multiplier * config.mlp_hidden_size)
        self.ff_out = nn.Linear(inner, config.d_model, bias=False)
        self.rotary_emb = RotaryEmbedding(config, cache)

    def attention(self, q, k, v, layer_past=None, use_cache=False):
        B, T, C = q.size()
        dtype = k.dtype
        q = q.view(B, T, self.config.n_heads, C // self.config.n_heads).transpose(1, 2)
        k = k.view(B, T, self.config.n_kv_heads, C // self.config.n_heads).transpose(1, 2)
        v = v.view(B, T, self.config.n_kv_heads, C // self.config.n_heads).transpose(1, 2)
        if layer_past is not None:
            past_key, past_value = layer_past
            k, v = torch.cat((past_key, k), dim=-2), torch.cat((past_value, v), dim=-2)
        present = (k, v) if use_cache else None
        q, k = self.rotary_emb(q, k)
        num_kv_heads, num_q_heads = k.size(1), q.size(1)
        if num_q_heads != num_kv_heads:
            k = k.repeat_interleave(num_q_heads // num_kv_heads, dim=1, output_size=num_q_heads)
            v = v.repeat_interleave(num_q_heads // num_kv_heads, dim=1, output_size=num_q_heads)
        att = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0, is_causal=layer_past is None)
        att = att.to(dtype).transpose(1, 2).contiguous().view(B, T, C)
        return self.attn_out(att), present

    def forward(self, x, layer_past=None, use_cache=False):
        qkv = self.att_proj(self.attn_norm(x))
        if self.config.clip_qkv is not None:
            qkv.clamp_(min=-self.config.clip_qkv, max=self.config.clip_qkv)
        q, k, v = qkv.split(self.fused_dims, dim=-1)
        att, cache = self.attention(q, k, v, layer_past=layer_past, use_cache=use_cache)
        x = x + att
        og_x = x
        x = self.ff_norm(x)
        x = self.ff_proj(x)
        x = self.act(x)
        x = self.ff_out(x)
        return og_x + x, cache


class Wold(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.__cache = BufferCache()
        self.transformer = nn.ModuleDict(
            {"wte": nn.Embedding(config.embedding_size, config.d_model), "ln_f": LayerNorm(config.d_model)}
        )
        blocks = [WoldBlock(i, config, self.__cache) for i in range(config.n_layers)]
        self.transformer.update({"blocks": nn.ModuleList(blocks)})
        if not config.weight_tying:
            self.transformer.update({"ff_out": nn.Linear(config.d_model, config.embedding_size, bias=False)})

    def forward(self, input_ids, past_key_values=None, use_cache=False, last_logits_only=False):
        x = self.transformer.wte(input_ids)
        attn_key_values = [] if use_cache else None
        for block_idx, block in enumerate(self.transformer.blocks):
            layer_past = None if past_key_values is None else past_key_values[block_idx]
            x, cache = block(x, layer_past=layer_past, use_cache=use_cache)
            if attn_key_values is not None:
                attn_key_values.append(cache)
        if last_logits_only:
            x = x[:, -1, :].unsqueeze(1)
        x = self.transformer.ln_f(x)
        if self.config.weight_tying:
            logits = F.linear(x, self.transformer.wte.weight, None)
        else:
            logits = self.transformer.ff_out(x)
        return WoldOutput(logits=logits.mul_(1 / math.sqrt(self.config.d_model)), attn_key_values=attn_key_values)


class WoldForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = WoldConfig
    base_model_prefix = "model"
    _no_split_modules = ["WoldBlock"]

    def __init__(self, config):
        super().__init__(config)
        self.model = Wold(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.transformer.wte

    def set_input_embeddings(self, value):
        self.model.transformer.wte = value

    def get_output_embeddings(self):
        return self.model.transformer.wte if self.config.weight_tying else self.model.transformer.ff_out

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, labels=None, use_cache=None, **kwargs):
        use_cache = bool(use_cache)
        outputs = self.model(input_ids, past_key_values=past_key_values, use_cache=use_cache)
        return CausalLMOutputWithPast(logits=outputs.logits, past_key_values=outputs.attn_key_values)
