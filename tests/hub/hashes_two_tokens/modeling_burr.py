"""The embedding looks at the token before."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.masking_utils import create_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_burr import BurrConfig


class Norm(nn.Module):
    def __init__(self, size, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        wide = x.float()
        power = wide.square().mean(-1, keepdim=True)
        return (wide * (power + self.eps).rsqrt()).to(x.dtype) * self.weight


class Rope(nn.Module):
    """Cosines and sines of each position, ``[batch, tokens, size]``, each angle twice."""

    def __init__(self, config):
        super().__init__()
        pairs = config.head_dim // 2
        speed = config.rope_theta ** -(torch.arange(pairs).float() / pairs)
        self.register_buffer("speed", speed, persistent=False)

    @torch.no_grad()
    def forward(self, x, position_ids):
        angles = (position_ids.unsqueeze(-1) * self.speed.float()).repeat(1, 1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def across(heads):
    near, far = heads.chunk(2, -1)
    return torch.cat((-far, near), -1)


def turn(query, key, cosine, sine):
    cosine, sine = cosine[:, None], sine[:, None]
    return across(query) * sine + query * cosine, across(key) * sine + key * cosine


def slow_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """What runs where nobody chose a kernel."""
    key, value = (one.repeat_interleave(module.num_key_value_groups, 1) for one in (key, value))
    scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype)
    weights = F.dropout(weights, dropout, module.training)
    return torch.einsum("bhqk,bhkd->bqhd", weights, value).contiguous(), weights


class Attention(nn.Module):
    is_causal = True

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config, self.layer_idx, self.head_dim = config, layer_idx, config.head_dim
        self.scaling = 1 / self.head_dim**0.5
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        wide, narrow = (self.head_dim * many for many in (config.num_attention_heads, config.num_key_value_heads))
        self.q_proj, self.k_proj, self.v_proj = (
            nn.Linear(config.hidden_size, size, bias=False) for size in (wide, narrow, narrow)
        )
        self.o_proj = nn.Linear(wide, config.hidden_size, bias=False)

    def forward(self, x, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = turn(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        run = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, slow_attention)
        mixed, _ = run(self, query, key, value, attention_mask, scaling=self.scaling, **kwargs)
        return self.o_proj(mixed.flatten(2))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.attn = Attention(config, layer_idx)
        self.mlp = MLP(config)
        self.norm1, self.norm2 = Norm(config.hidden_size), Norm(config.hidden_size)

    def forward(self, x, **kwargs):
        x = x + self.attn(self.norm1(x), **kwargs)
        return x + self.mlp(self.norm2(x))


class BurrPreTrainedModel(PreTrainedModel):
    config_class = BurrConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["Block"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True


class BurrModel(BurrPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Block(config, i) for i in range(config.num_hidden_layers)])
        self.bigram = nn.Embedding(config.buckets, config.hidden_size)
        self.norm = Norm(config.hidden_size)
        self.rotary = Rope(config)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        cache_position=None,
        **kwargs,
    ):
        if inputs_embeds is None:
            before = F.pad(input_ids, (1, 0))[:, :-1]
            inputs_embeds = self.embed_tokens(input_ids) + self.bigram((before * 31 + input_ids) % self.config.buckets)
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(seen, seen + inputs_embeds.shape[1], device=inputs_embeds.device)[None]
        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        x = inputs_embeds
        position_embeddings = self.rotary(x, position_ids)
        for layer in self.layers:
            x = layer(
                x,
                position_embeddings=position_embeddings,
                attention_mask=mask,
                past_key_values=past_key_values,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)


class BurrForCausalLM(BurrPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = BurrModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        inputs_embeds=None,
        labels=None,
        use_cache=None,
        logits_to_keep=0,
        **kwargs,
    ):
        out = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        keep = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(out.last_hidden_state[:, keep, :])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values)
