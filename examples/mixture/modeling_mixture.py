"""A small mixture of experts, annotated: it trains as it stands, and the hints say what each class is."""

import torch
from torch import nn
from transformers import DynamicCache, GenerationMixin, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .configuration_mixture import MixtureConfig
from .hfspeed_hints import attention, decoder_layers, experts, gated_mlp, norm


@norm
class MixtureRMSNorm(nn.Module):
    """Divide by the root mean square, in float32 at least, then scale."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class MixtureRotary(nn.Module):
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
class MixtureAttention(nn.Module):
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

    def forward(self, x, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
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


@gated_mlp(gate="gate_proj", up="up_proj", down="down_proj")
class MixtureMLP(nn.Module):
    """The feed-forward block."""

    def __init__(self, config, width):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class MixtureRouter(nn.Module):
    """Which experts each token visits, and what each of them weighs."""

    def __init__(self, config):
        super().__init__()
        self.chosen = config.num_experts_per_tok
        self.scale = config.routed_scale
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        # raises or lowers the chance of an expert, not its weight; set while training, to keep all of them busy
        self.register_buffer("balance", torch.zeros(config.num_experts))

    def forward(self, tokens):
        scores = nn.functional.linear(tokens.float(), self.weight.float()).sigmoid()
        ids = (scores + self.balance).topk(self.chosen, dim=-1).indices
        weights = scores.gather(1, ids)
        weights = weights / weights.sum(-1, keepdim=True) * self.scale
        return ids, weights.to(tokens.dtype)


class MixtureExperts(nn.Module):
    """All experts in two tensors. Being a module that takes tokens, ids and weights, it can become one kernel."""

    def __init__(self, config):
        super().__init__()
        count, width = config.num_experts, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * width, config.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(count, config.hidden_size, width))
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, tokens, ids, weights):
        out = torch.zeros_like(tokens)
        for number in ids.unique():
            token, slot = torch.where(ids == number)
            gate, up = nn.functional.linear(tokens[token], self.gate_up_proj[number]).chunk(2, dim=-1)
            each = nn.functional.linear(self.act_fn(gate) * up, self.down_proj[number])
            out.index_add_(0, token, each * weights[token, slot, None])
        return out


@experts(router="router", experts="experts", shared="shared")
class MixtureBlock(nn.Module):
    """A few experts for each token, and one that all tokens visit."""

    def __init__(self, config):
        super().__init__()
        self.router = MixtureRouter(config)
        self.experts = MixtureExperts(config)
        self.shared = MixtureMLP(config, config.moe_intermediate_size)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        ids, weights = self.router(tokens)
        return (self.experts(tokens, ids, weights) + self.shared(tokens)).view_as(x)


class MixtureLayer(GradientCheckpointingLayer):
    """Attention, then the feed-forward block, each after a norm and added to the stream."""

    def __init__(self, config, layer_idx):
        super().__init__()
        self.self_attn = MixtureAttention(config, layer_idx)
        dense = layer_idx < config.first_dense_layers
        self.mlp = MixtureMLP(config, config.intermediate_size) if dense else MixtureBlock(config)
        self.input_layernorm = MixtureRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = MixtureRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, **kwargs):
        mixed, _ = self.self_attn(self.input_layernorm(x), **kwargs)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


class MixturePreTrainedModel(PreTrainedModel):
    """What every class with these weights shares."""

    config_class = MixtureConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MixtureLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, MixtureRouter | MixtureExperts):
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, std=self.config.initializer_range)
        if isinstance(module, MixtureRouter):
            module.balance.zero_()


@decoder_layers("layers")
class MixtureModel(MixturePreTrainedModel):
    """The decoder without its head."""

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary = MixtureRotary(config)
        self.layers = nn.ModuleList(MixtureLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = MixtureRMSNorm(config.hidden_size, config.rms_norm_eps)
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


class MixtureForCausalLM(MixturePreTrainedModel, GenerationMixin):
    """The decoder with its head, and the loss."""

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = MixtureModel(config)
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


__all__ = ["MixtureForCausalLM", "MixtureModel", "MixturePreTrainedModel"]
