"""A small hybrid, annotated: most layers keep a memory of one size, every few attend; it trains as it stands."""

import torch
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_hybrid import HybridConfig
from .hfspeed_hints import attention, decoder_layers, gated_mlp, norm, recurrence


@norm
class HybridRMSNorm(nn.Module):
    """Divide by the root mean square, in float32 at least, then scale."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class HybridRotary(nn.Module):
    """The angle of every pair of channels at every position; nothing to load, nothing to keep."""

    def __init__(self, config):
        super().__init__()
        self.size = config.head_dim
        self.theta = config.rope_parameters["rope_theta"]

    def forward(self, x, position_ids):
        exponent = torch.arange(0, self.size, 2, device=x.device, dtype=torch.float32) / self.size
        angle = position_ids[..., None].float() * self.theta**-exponent
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def rotate(x, cos, sin):
    """Turn each pair of channels (one from either half of a head) by its angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


def eager_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Attention in plain torch, for training without a fused kernel."""
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


@attention(query="q_proj", key="k_proj", value="v_proj", output="o_proj")
class HybridAttention(nn.Module):
    """Grouped-query attention; `ALL_ATTENTION_FUNCTIONS` decides which kernel runs."""

    is_causal = True

    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.scaling = config.head_dim**-0.5
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)

    def forward(self, x, position_embeddings, attention_mask=None, past_key_values=None, padding=None, **kwargs):
        shape = (*x.shape[:-1], -1, self.head_dim)
        query = self.q_proj(x).view(shape).transpose(1, 2)
        key = self.k_proj(x).view(shape).transpose(1, 2)
        value = self.v_proj(x).view(shape).transpose(1, 2)

        cos, sin = position_embeddings
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)

        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention)
        dropout = self.config.attention_dropout if self.training else 0.0
        mixed, weights = attend(
            self, query, key, value, attention_mask, scaling=self.scaling, dropout=dropout, **kwargs
        )
        return self.o_proj(mixed.reshape(*x.shape[:-1], -1)), weights


@recurrence("gated_delta", q="query", k="key", v="value", g="decay", beta="rate", state=True)
def corrected_memory(query, key, value, decay, rate, memory=None):
    """What queries read from a memory of key-value pairs that fades and is corrected, token by token.

    All are ``[batch, tokens, heads, size]``, but the logarithm of the decay and the rate, which have one number for
    each head. ``memory`` is ``[batch, heads, key size, value size]``; it is given back as the last token leaves it.
    """
    dtype, wide = query.dtype, torch.promote_types(query.dtype, torch.float32)
    query, key, value, decay, rate = (one.to(wide) for one in (query, key, value, decay, rate))
    query = query * query.shape[-1] ** -0.5
    if memory is None:
        memory = value.new_zeros(value.shape[0], value.shape[2], key.shape[-1], value.shape[-1])
    found = []
    for token in range(value.shape[1]):
        memory = memory * decay[:, token, :, None, None].exp()
        wrong = value[:, token] - torch.einsum("bhk,bhkv->bhv", key[:, token], memory)
        memory = memory + torch.einsum("bhk,bhv->bhkv", key[:, token], wrong * rate[:, token, :, None])
        found.append(torch.einsum("bhk,bhkv->bhv", query[:, token], memory))
    return torch.stack(found, dim=1).to(dtype), memory


class HybridMemory(nn.Module):
    """A layer's memory: a short convolution, the delta rule with a decay, a norm of each head behind a gate."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.heads = config.memory_heads
        self.key_width = config.memory_heads * config.memory_key_size
        self.value_width = config.memory_heads * config.memory_value_size
        mixed = 2 * self.key_width + self.value_width
        self.in_proj = nn.Linear(config.hidden_size, mixed, bias=False)
        self.gate_proj = nn.Linear(config.hidden_size, self.value_width, bias=False)
        self.decay_proj = nn.Linear(config.hidden_size, config.memory_heads, bias=False)
        self.rate_proj = nn.Linear(config.hidden_size, config.memory_heads, bias=False)
        self.decay = nn.Parameter(torch.zeros(config.memory_heads))
        self.decay_bias = nn.Parameter(torch.zeros(config.memory_heads))
        inputs = config.memory_inputs
        self.conv = nn.Conv1d(mixed, mixed, inputs, groups=mixed, padding=inputs - 1, bias=False)
        self.norm = HybridRMSNorm(config.memory_value_size, config.rms_norm_eps)
        self.out_proj = nn.Linear(self.value_width, config.hidden_size, bias=False)

    def convolved(self, x, cache):
        """Every channel, mixed with its last inputs; those of an earlier call are in the cache."""
        x, tokens = x.transpose(1, 2), x.shape[1]
        if cache is not None:
            x = cache.update_conv_state(x, self.layer_idx, conv_kernel_size=self.conv.kernel_size[0] - 1)
        x = self.conv(x)[..., : x.shape[-1]]
        if cache is not None:
            x = x[..., -tokens:]
        return nn.functional.silu(x).transpose(1, 2)

    def forward(self, x, past_key_values=None, padding=None, **kwargs):
        if padding is not None:
            x = x * padding[:, -x.shape[1] :, None].to(x.dtype)
        memory = None
        if past_key_values is not None and past_key_values.has_previous_state(self.layer_idx):
            memory = past_key_values.layers[self.layer_idx].recurrent_states[0]

        mixed = self.convolved(self.in_proj(x), past_key_values)
        parts = mixed.split((self.key_width, self.key_width, self.value_width), dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        query, key = nn.functional.normalize(query, dim=-1), nn.functional.normalize(key, dim=-1)
        decay = -self.decay.exp() * nn.functional.softplus(self.decay_proj(x) + self.decay_bias)
        rate = self.rate_proj(x).sigmoid()
        read, memory = corrected_memory(query, key, value, decay, rate, memory=memory)
        if past_key_values is not None:
            past_key_values.update_recurrent_state(memory, self.layer_idx)

        gate = self.gate_proj(x).unflatten(-1, (self.heads, -1))
        return self.out_proj((self.norm(read) * nn.functional.silu(gate)).flatten(-2)), None


@gated_mlp(gate="gate_proj", up="up_proj", down="down_proj")
class HybridMLP(nn.Module):
    """The feed-forward block."""

    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class HybridLayer(GradientCheckpointingLayer):
    """A memory or attention, then the feed-forward block, each after a norm and added to the stream."""

    def __init__(self, config, layer_idx):
        super().__init__()
        if config.layer_types[layer_idx] == "full_attention":
            self.mixer = HybridAttention(config, layer_idx)
        else:
            self.mixer = HybridMemory(config, layer_idx)
        self.mlp = HybridMLP(config)
        self.input_layernorm = HybridRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = HybridRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, **kwargs):
        mixed, _ = self.mixer(self.input_layernorm(x), **kwargs)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


class HybridPreTrainedModel(PreTrainedModel):
    """What every class with these weights shares."""

    config_class = HybridConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["HybridLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True


@decoder_layers("layers")
class HybridModel(HybridPreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary = HybridRotary(config)
        self.layers = nn.ModuleList(HybridLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = HybridRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

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
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        if position_ids is None:
            seen = past_key_values.get_seq_length() if past_key_values is not None else 0
            position_ids = torch.arange(seen, seen + x.shape[1], device=x.device)[None]

        mask = create_causal_mask(
            config=self.config,
            inputs_embeds=x,
            attention_mask=attention_mask,
            past_key_values=past_key_values,
            position_ids=position_ids,
        )
        padding = attention_mask if attention_mask is not None and attention_mask.dim() == 2 else None
        position_embeddings = self.rotary(x, position_ids)
        for layer in self.layers:
            x = layer(
                x,
                position_embeddings=position_embeddings,
                attention_mask=mask,
                past_key_values=past_key_values,
                padding=padding,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)


class HybridForCausalLM(HybridPreTrainedModel, GenerationMixin):
    """The decoder with its head, and the loss."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = HybridModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None, logits_to_keep=0, **kwargs):
        output = self.model(input_ids=input_ids, **kwargs)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(output.last_hidden_state[:, kept])
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=output.past_key_values)


__all__ = ["HybridForCausalLM", "HybridModel", "HybridPreTrainedModel"]
