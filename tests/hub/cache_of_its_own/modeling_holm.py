"""A cache that is a tuple for each layer, masks added up by hand from a 2-D one, and attention chosen by its name."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_holm import HolmConfig
from .rotary_holm import angles_of


def hide_the_future(tokens, past, like):
    """``[tokens, past + tokens]``: zero for what a token may look at, the lowest number for what comes after it."""
    now = torch.arange(past, past + tokens, device=like.device)
    after = torch.arange(past + tokens, device=like.device) > now.unsqueeze(-1)
    return like.new_zeros(after.shape).masked_fill(after, torch.finfo(like.dtype).min)


def hide_the_padding(given, like):
    """``[batch, 1, 1, keys]`` from a mask of ones and zeros that has one column for each key."""
    left_out = given.to(like.device) == 0
    return like.new_zeros(left_out.shape).masked_fill(left_out, torch.finfo(like.dtype).min)[:, None, None]


def turned(heads, cosines, sines):
    """Channel ``i`` and channel ``i + size / 2`` of each head are the two sides of one angle."""
    low, high = heads.tensor_split(2, dim=-1)
    return heads * cosines + torch.cat([high.neg(), low], dim=-1) * sines


class Norm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden_size))
        self.eps = config.rms_norm_eps

    def forward(self, x):
        wide = x.float()
        wide = wide / (wide.square().mean(dim=-1, keepdim=True) + self.eps).sqrt()
        return wide.to(x.dtype) * self.weight


class EagerAttention(nn.Module):
    """The projection holds, for each head of keys, its queries, then its key, then its value."""

    def __init__(self, config):
        super().__init__()
        self.kv_heads = config.num_key_value_heads
        self.per_key = config.num_attention_heads // self.kv_heads
        self.size = config.hidden_size // config.num_attention_heads
        packed = self.kv_heads * (self.per_key + 2) * self.size
        self.wqkv = nn.Linear(config.hidden_size, packed, bias=config.bias)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.angles = angles_of(config, self.size)

    def unpack(self, x):
        """Queries ``[batch, kv_heads, per_key, tokens, size]``; keys and values have no third axis."""
        packed = self.wqkv(x).unflatten(-1, (self.kv_heads, self.per_key + 2, self.size)).movedim(1, 3)
        return packed.split_with_sizes([self.per_key, 1, 1], dim=2)

    def forward(self, x, mask, position_ids, past=None, give_weights=False, use_cache=False):
        query, key, value = self.unpack(x)
        key, value = key.squeeze(2), value.squeeze(2)
        seen = key.size(2) if past is None else key.size(2) + past[0].size(2)
        cosines, sines = (table[position_ids].unsqueeze(1) for table in self.angles(value, seen))
        query, key = turned(query.flatten(1, 2), cosines, sines), turned(key, cosines, sines)
        if past is not None:
            key, value = (torch.cat(both, dim=2) for both in zip(past, (key, value), strict=True))
        present = (key, value) if use_cache else None
        many_keys, many_values = (one.repeat_interleave(self.per_key, dim=1) for one in (key, value))
        scores = query @ many_keys.mT * self.size**-0.5
        if mask is not None:
            scores = scores + mask
        weights = scores.float().softmax(-1).to(x.dtype)
        mixed = (weights @ many_values).movedim(1, 2).flatten(2)
        return self.wo(mixed), weights if give_weights else None, present


WAYS_TO_ATTEND = {"eager": EagerAttention}


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(config.hidden_size, config.intermediate_size, bias=False) for _ in range(2))
        self.w2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.act = nn.SiLU()

    def forward(self, x):
        opened = self.act(self.w1(x))
        return self.w2(opened * self.w3(x))


class HolmLayer(nn.Module):
    """Gives a tuple that is longer if weights or keys and values were asked for."""

    def __init__(self, config):
        super().__init__()
        self.attention_norm, self.ffn_norm = Norm(config), Norm(config)
        self.attention = WAYS_TO_ATTEND[config.attn_implementation](config)
        self.feed_forward = FeedForward(config)

    def forward(self, x, mask=None, position_ids=None, past=None, give_weights=False, use_cache=False):
        mixed, weights, present = self.attention(
            self.attention_norm(x), mask, position_ids, past=past, give_weights=give_weights, use_cache=use_cache
        )
        x = mixed + x
        found = (self.feed_forward(self.ffn_norm(x)) + x,)
        if give_weights:
            found = (*found, weights)
        return (*found, present) if use_cache else found


class HolmPreTrainedModel(PreTrainedModel):
    config_class = HolmConfig
    base_model_prefix = "model"


class HolmModel(HolmPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(HolmLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = Norm(config)
        self.post_init()

    def get_input_embeddings(self):
        return self.tok_embeddings

    def set_input_embeddings(self, table):
        self.tok_embeddings = table

    def mask_of(self, given, x, past):
        """What is added to the scores; a single token looks at all that is not padding."""
        batch, tokens, _ = x.shape
        if given is None:
            given = torch.ones(batch, past + tokens, dtype=torch.bool, device=x.device)
        padding = hide_the_padding(given, x)
        if tokens == 1:
            return padding
        return hide_the_future(tokens, past, x)[None, None] + padding

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
        use_cache=None, output_attentions=None,
    ):  # fmt: skip
        give_weights = self.config.output_attentions if output_attentions is None else output_attentions
        use_cache = self.config.use_cache if use_cache is None else use_cache
        x = inputs_embeds if inputs_embeds is not None else self.tok_embeddings(input_ids)
        pasts = past_key_values if past_key_values is not None else [None] * len(self.layers)
        past = 0 if pasts[0] is None else pasts[0][0].size(2)
        if position_ids is None:
            position_ids = past + torch.arange(x.size(1), device=x.device).unsqueeze(0)
        mask = self.mask_of(attention_mask, x, past)
        presents, attentions = [], []
        for layer, kept in zip(self.layers, pasts, strict=True):
            x, *more = layer(x, mask, position_ids, past=kept, give_weights=give_weights, use_cache=use_cache)
            if give_weights:
                attentions.append(more[0])
            if use_cache:
                presents.append(more[-1])
        return BaseModelOutputWithPast(
            last_hidden_state=self.norm(x),
            past_key_values=tuple(presents) if use_cache else None,
            attentions=tuple(attentions) if give_weights else None,
        )


class HolmForCausalLM(HolmPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = HolmModel(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.tok_embeddings

    def set_input_embeddings(self, table):
        self.model.tok_embeddings = table

    def get_output_embeddings(self):
        return self.output

    def set_output_embeddings(self, head):
        self.output = head

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, inputs_embeds=None,
        labels=None, use_cache=None, output_attentions=None,
    ):  # fmt: skip
        found = self.model(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, output_attentions
        )
        scores = self.output(found.last_hidden_state).float()
        loss = None if labels is None else self.loss_function(scores, labels, self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=scores, past_key_values=found.past_key_values)
