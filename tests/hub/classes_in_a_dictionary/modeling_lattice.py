"""One class of attention for each implementation, in a dictionary, as files of some years ago had it; layers give tuples."""

import torch
from torch import nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_lattice import LatticeConfig

try:
    from flash_attn import flash_attn_func as of_the_package
except ImportError:
    of_the_package = None


class LatticeNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.eps = config.rms_norm_eps
        self.weight = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, x):
        wide = x.to(torch.float32)
        power = wide.square().mean(dim=-1, keepdim=True)
        return (wide * (power + self.eps).rsqrt()).to(x.dtype) * self.weight


class LatticeRope(nn.Module):
    """Each attention has one of its own."""

    def __init__(self, config):
        super().__init__()
        pairs = config.hidden_size // config.num_attention_heads // 2
        self.register_buffer("speed", config.rope_theta ** -(torch.arange(pairs).float() / pairs), persistent=False)

    @torch.no_grad()
    def forward(self, position_ids, dtype):
        """Cosines and sines, ``[batch, 1, tokens, size]``."""
        angle = (position_ids.unsqueeze(-1) * self.speed).repeat(1, 1, 2).unsqueeze(1)
        return angle.cos().to(dtype), angle.sin().to(dtype)


def turn(heads, cosine, sine):
    near, far = heads.split(heads.size(-1) // 2, dim=-1)
    return torch.cat((far.neg(), near), dim=-1) * sine + heads * cosine


def for_each_query(heads, times):
    """``[batch, kv_heads, tokens, size]`` to as many heads as there are of queries."""
    return heads if times == 1 else heads.repeat_interleave(times, dim=1)


class LatticeAttention(nn.Module):
    """Softmax written out; the others take their heads from here."""

    def __init__(self, config, place):
        super().__init__()
        self.place, self.width, self.rope = place, config.hidden_size, LatticeRope(config)
        self.size = config.hidden_size // config.num_attention_heads
        self.times = config.num_attention_heads // config.num_key_value_heads
        narrow = config.num_key_value_heads * self.size
        for name, width in (("q_proj", config.hidden_size), ("k_proj", narrow), ("v_proj", narrow)):
            setattr(self, name, nn.Linear(config.hidden_size, width, bias=False))
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def heads(self, x, position_ids, cache):
        query, key, value = (
            project(x).unflatten(-1, (-1, self.size)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        angles = self.rope(position_ids, x.dtype)
        query, key = turn(query, *angles), turn(key, *angles)
        if cache is None:
            return query, key, value
        return (query, *cache.update(key, value, self.place))

    def attend(self, query, key, value, mask):
        """``[batch, heads, tokens, size]``; the mask may have more columns than there are keys."""
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / self.size**0.5
        if mask is not None:
            scores = scores + mask[..., : key.shape[-2]]
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
        return weights @ value

    def forward(self, x, mask=None, position_ids=None, past_key_value=None, **others):
        query, key, value = self.heads(x, position_ids, past_key_value)
        key, value = for_each_query(key, self.times), for_each_query(value, self.times)
        mixed = self.attend(query, key, value, mask).transpose(1, 2).contiguous()
        return self.o_proj(mixed.flatten(-2)), None, past_key_value


class LatticeTorchAttention(LatticeAttention):
    def forward(self, x, mask=None, position_ids=None, past_key_value=None, **others):
        query, key, value = self.heads(x, position_ids, past_key_value)
        if mask is not None:
            mask = mask[..., : key.size(-2)]
        mixed = functional.scaled_dot_product_attention(
            query, for_each_query(key, self.times), for_each_query(value, self.times),
            attn_mask=mask, is_causal=mask is None and x.size(1) > 1,
        )  # fmt: skip
        return self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:-1], self.width)), None, past_key_value


class LatticePackageAttention(LatticeAttention):
    def forward(self, x, mask=None, position_ids=None, past_key_value=None, **others):
        heads = [one.transpose(1, 2) for one in self.heads(x, position_ids, past_key_value)]
        return self.o_proj(of_the_package(*heads, causal=True).flatten(2)), None, past_key_value


ATTENTION_BY_NAME = {
    "sdpa": LatticeTorchAttention,
    "eager": LatticeAttention,
    "flash_attention_2": LatticePackageAttention,
}


class LatticeMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(self.up_proj(x) * functional.silu(self.gate_proj(x)))


class LatticeLayer(nn.Module):
    def __init__(self, config, place):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = LatticeNorm(config), LatticeNorm(config)
        self.self_attn = ATTENTION_BY_NAME[config._attn_implementation](config, place)
        self.mlp = LatticeMLP(config)

    def forward(self, x, mask=None, position_ids=None, past_key_value=None, use_cache=False):
        mixed, _, cache = self.self_attn(
            self.input_layernorm(x), mask=mask, position_ids=position_ids, past_key_value=past_key_value
        )
        x = mixed + x
        x = self.mlp(self.post_attention_layernorm(x)) + x
        return (x, cache) if use_cache else (x,)


class LatticePreTrainedModel(PreTrainedModel):
    config_class = LatticeConfig
    base_model_prefix = "model"
    _no_split_modules = ["LatticeLayer"]
    _supports_flash_attn_2 = True
    _supports_sdpa = True


class LatticeModel(LatticePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LatticeLayer(config, place) for place in range(config.num_hidden_layers))
        self.norm = LatticeNorm(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    @staticmethod
    def later_tokens_hidden(x, seen):
        """``[1, 1, tokens, seen + tokens]``; what was given to hide padding with is not looked at."""
        tokens = x.shape[1]
        lowest = torch.full((tokens, seen + tokens), torch.finfo(x.dtype).min, dtype=x.dtype, device=x.device)
        return lowest.triu(seen + 1).unsqueeze(0).unsqueeze(0)

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
        use_cache=None, return_dict=None,
    ):  # fmt: skip
        use_cache = self.config.use_cache if use_cache is None else use_cache
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        seen = 0 if past_key_values is None else past_key_values.get_seq_length()
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)[None] + seen
        mask = self.later_tokens_hidden(x, seen)
        for layer in self.layers:
            found = layer(x, mask=mask, position_ids=position_ids, past_key_value=past_key_values, use_cache=use_cache)
            x = found[0]
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), past_key_values=past_key_values)


class LatticeForCausalLM(LatticePreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.model = LatticeModel(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
        labels=None, use_cache=None, return_dict=None,
    ):  # fmt: skip
        found = self.model(input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache)
        scores = self.lm_head(found.last_hidden_state).to(torch.float32)
        loss = None if labels is None else self.loss_function(scores, labels, self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=scores, past_key_values=found.past_key_values)
