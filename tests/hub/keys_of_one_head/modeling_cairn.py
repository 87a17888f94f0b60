"""All heads share one key and one value, which one projection packs behind the queries; scripted kernels; tied head."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_cairn import CairnConfig


@torch.jit.script
def shares(scores: torch.Tensor, seen: torch.Tensor, lowest: torch.Tensor, times: float):
    """Softmax in float32 of what is seen, in the type of the scores."""
    wide = torch.where(seen, scores.float() * times, lowest)
    return wide.softmax(-1).to(scores.dtype)


class CairnAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.size = config.n_head, config.n_embd // config.n_head
        self.times = self.size**-0.5 if config.scale_attn_weights else 1.0
        self.c_attn = nn.Linear(config.n_embd, config.n_embd + 2 * self.size)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop_shares, self.drop_result = nn.Dropout(0.1), nn.Dropout(0.1)

    def attend(self, query, key, value, seen):
        """Each head of each token is a row of one product, for there is only one key; heads come behind tokens."""
        rows = query.unflatten(-1, (self.heads, self.size)).flatten(1, 2)
        scores = rows.bmm(key.transpose(1, 2)).unflatten(1, (-1, self.heads))
        lowest = torch.full((), torch.finfo(torch.float32).min, device=scores.device)
        weights = self.drop_shares(shares(scores, seen, lowest, self.times))
        return weights.flatten(1, 2).bmm(value).view_as(query)

    def forward(self, x, past=None, seen=None):
        query, both = self.c_attn(x).tensor_split([x.size(-1)], dim=-1)
        if past is not None:
            both = torch.cat([past, both], dim=1)
        key, value = both.chunk(2, dim=-1)
        return self.drop_result(self.c_proj(self.attend(query, key, value, seen))), both


class CairnMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = 4 * config.n_embd if config.n_inner is None else config.n_inner
        self.c_fc, self.c_proj = nn.Linear(config.n_embd, inner), nn.Linear(inner, config.n_embd)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class CairnBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(config.n_embd, config.layer_norm_epsilon) for _ in range(2))
        self.attn, self.mlp = CairnAttention(config), CairnMLP(config)

    def forward(self, x, past=None, seen=None):
        mixed, present = self.attn(self.ln_1(x), past, seen)
        x = x + mixed
        return self.mlp(self.ln_2(x)) + x, present


class CairnPreTrainedModel(PreTrainedModel):
    config_class = CairnConfig
    base_model_prefix = "transformer"
    _no_split_modules = ["CairnBlock"]


class CairnModel(CairnPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte, self.wpe = (nn.Embedding(rows, config.n_embd) for rows in (config.vocab_size, config.n_positions))
        self.h = nn.ModuleList(CairnBlock(config) for _ in range(config.n_layer))
        self.ln_f, self.drop = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon), nn.Dropout(0.1)
        square = torch.ones(config.n_positions, config.n_positions, dtype=torch.bool)
        self.register_buffer("triangle", square.tril(), persistent=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def set_input_embeddings(self, table):
        self.wte = table

    def forward(
        self, input_ids=None, past_key_values=None, attention_mask=None, position_ids=None, inputs_embeds=None,
        use_cache=None, **others,
    ):  # fmt: skip
        x = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        pasts = past_key_values or [None] * len(self.h)
        first = pasts[0].size(1) if past_key_values else 0
        last = first + x.size(1)
        if position_ids is None:
            position_ids = torch.arange(first, last, device=x.device)[None]
        seen = self.triangle[first:last, :last][None, :, None]
        x = self.drop(self.wpe(position_ids) + x)
        presents = []
        for block, past in zip(self.h, pasts, strict=True):
            x, present = block(x, past, seen)
            presents.append(present)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(x), past_key_values=presents if use_cache else None)


class CairnForCausalLM(CairnPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "transformer.wte.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.transformer = CairnModel(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def set_output_embeddings(self, head):
        self.lm_head = head

    def forward(self, input_ids=None, labels=None, **others):
        found = self.transformer(input_ids, **others)
        scores = self.lm_head(found.last_hidden_state)
        loss = None if labels is None else self.loss_function(scores, labels, self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=scores, past_key_values=found.past_key_values)
