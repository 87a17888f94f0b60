"""A model inside the model, its parts in a dictionary; norms without weights, clipped projections, a tied table for a head."""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_wold import WoldConfig


class Found(NamedTuple):
    """What the inner model gives: its scores, and keys and values of each block if they were asked for."""

    scores: torch.Tensor
    kept: list | None


class BareNorm(nn.Module):
    """Nothing to learn."""

    def __init__(self, *shape):
        super().__init__()
        self.shape = shape

    def forward(self, x):
        return functional.layer_norm(x, self.shape)


class Gated(nn.Module):
    """The gate is the second half of what comes."""

    narrower = 2

    def forward(self, x):
        up, gate = x.tensor_split(self.narrower, dim=-1)
        return up * functional.silu(gate)


class SharedRope(nn.Module):
    """All blocks read and write one dictionary of tables, which is no state of any of them."""

    def __init__(self, config, shared):
        super().__init__()
        self.size, self.theta = config.d_model // config.n_heads, config.rope_theta
        self.shared = shared

    def tables(self, positions, device):
        if positions > self.shared.get("rows", 0) or self.shared["sine"].device != device:
            channels = torch.arange(self.size, device=device) % (self.size // 2)
            angles = torch.arange(positions, device=device)[:, None] * self.theta ** (channels * (-2.0 / self.size))
            self.shared.update(rows=positions, sine=angles.sin(), cosine=angles.cos())
        return self.shared["sine"][:positions], self.shared["cosine"][:positions]

    def turn(self, x, sine, cosine):
        front, back = x.float().unflatten(-1, (2, -1)).unbind(-2)
        across = torch.cat((-back, front), dim=-1)
        return (across * sine + x.float() * cosine).to(x.dtype)

    def forward(self, query, key):
        """The queries are the last of the positions that there are keys of."""
        sine, cosine = self.tables(key.size(2), key.device)
        latest = slice(key.size(2) - query.size(2), None)
        return self.turn(query, sine[latest], cosine[latest]), self.turn(key, sine, cosine)


class WoldBlock(nn.Module):
    """Attention and MLP in one module; what they project with lies side by side in it."""

    def __init__(self, place, config, shared):
        super().__init__()
        self.place, self.config = place, config
        self.act, self.rope = Gated(), SharedRope(config, shared)
        self.attn_norm, self.ff_norm = BareNorm(config.d_model), BareNorm(config.d_model)
        grouped = config.n_kv_heads * self.rope.size
        self.widths = [config.d_model, grouped, grouped]
        made = {
            "att_proj": (config.d_model, sum(self.widths)), "attn_out": (config.d_model, config.d_model),
            "ff_proj": (config.d_model, config.mlp_hidden_size),
            "ff_out": (config.mlp_hidden_size // Gated.narrower, config.d_model),
        }  # fmt: skip
        for name, sizes in made.items():
            self.add_module(name, nn.Linear(*sizes, bias=False))

    def attend(self, query, key, value, past, use_cache):
        query, key, value = (one.unflatten(-1, (-1, self.rope.size)).transpose(1, 2) for one in (query, key, value))
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        kept = (key, value) if use_cache else None
        query, key = self.rope(query, key)
        if self.config.n_kv_heads < self.config.n_heads:
            times = self.config.n_heads // self.config.n_kv_heads
            key, value = (one.repeat_interleave(times, 1) for one in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        return self.attn_out(mixed.transpose(1, 2).flatten(2)), kept

    def forward(self, x, past=None, use_cache=False):
        packed = self.att_proj(self.attn_norm(x))
        clip = self.config.clip_qkv
        if clip is not None:
            packed.clamp_(-clip, clip)
        mixed, kept = self.attend(*packed.split(self.widths, dim=-1), past, use_cache)
        x = x + mixed
        return x + self.ff_out(self.act(self.ff_proj(self.ff_norm(x)))), kept


class Wold(nn.Module):
    """All of it, from token ids to scores."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        shared = {}
        parts = {
            "wte": nn.Embedding(config.embedding_size, config.d_model),
            "blocks": nn.ModuleList(WoldBlock(place, config, shared) for place in range(config.n_layers)),
            "ln_f": BareNorm(config.d_model),
        }
        if not config.weight_tying:
            parts["ff_out"] = nn.Linear(config.d_model, config.embedding_size, bias=False)
        self.transformer = nn.ModuleDict(parts)

    def head(self, x):
        if not self.config.weight_tying:
            return self.transformer["ff_out"](x)
        return functional.linear(x, self.transformer["wte"].weight)

    def forward(self, input_ids, pasts=None, use_cache=False, last_only=False):
        x, kept = self.transformer["wte"](input_ids), []
        for place, block in enumerate(self.transformer["blocks"]):
            x, one = block(x, past=pasts[place] if pasts is not None else None, use_cache=use_cache)
            kept.append(one)
        if last_only:
            x = x[:, -1:]
        scores = self.head(self.transformer["ln_f"](x))
        return Found(scores.mul_(self.config.d_model**-0.5), kept if use_cache else None)


class WoldForCausalLM(PreTrainedModel, GenerationMixin):
    """Hands over to the model inside, which has the head too."""

    config_class = WoldConfig
    base_model_prefix = "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = Wold(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.transformer["wte"]

    def set_input_embeddings(self, table):
        self.model.transformer["wte"] = table

    def get_output_embeddings(self):
        return self.model.transformer["wte" if self.config.weight_tying else "ff_out"]

    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, labels=None, use_cache=None, **others):
        found = self.model(input_ids, past_key_values, bool(use_cache))
        loss = None if labels is None else self.loss_function(found.scores, labels, self.config.embedding_size)
        return CausalLMOutputWithPast(loss=loss, logits=found.scores, past_key_values=found.kept)
