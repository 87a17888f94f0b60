"""All heads share one key and one value, which one projection packs behind the queries; scripted kernels; tied head."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_cairn import CairnConfig


@torch.jit.script
def upcast_masked_softmax(x: torch.Tensor, mask: torch.Tensor, mask_value: torch.Tensor, scale: float):
    kind = x.dtype
    x = x.to(torch.float32) * scale
    x = torch.where(mask, x, mask_value)
    return torch.nn.functional.softmax(x, dim=-1).to(kind)


class CairnAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.embed_dim = config.n_embd
        self.num_heads = config.n_head
        self.head_dim = self.embed_dim // self.num_heads
        self.kv_dim = self.head_dim
        self.scale = self.head_dim**-0.5 if config.scale_attn_weights else 1.0
        self.c_attn = nn.Linear(self.embed_dim, self.embed_dim + 2 * self.kv_dim)
        self.c_proj = nn.Linear(self.embed_dim, self.embed_dim)
        self.attn_dropout = nn.Dropout(0.1)
        self.resid_dropout = nn.Dropout(0.1)

    def _attn(self, query, key, value, mask):
        batch, tokens, _ = query.shape
        query = query.reshape(batch, tokens * self.num_heads, self.head_dim)
        scores = torch.bmm(query, key).view(batch, tokens, self.num_heads, -1)
        mask_value = torch.full([], torch.finfo(torch.float32).min, dtype=torch.float32, device=scores.device)
        weights = upcast_masked_softmax(scores, mask, mask_value, self.scale)
        weights = self.attn_dropout(weights)
        return torch.bmm(weights.view(batch, tokens * self.num_heads, -1), value).view(batch, tokens, -1)

    def forward(self, hidden_states, layer_past=None, attention_mask=None):
        query, key_value = self.c_attn(hidden_states).split((self.embed_dim, 2 * self.kv_dim), dim=2)
        if layer_past is not None:
            key_value = torch.cat((layer_past, key_value), dim=-2)
        key, value = key_value.split((self.kv_dim, self.kv_dim), dim=-1)
        out = self._attn(query, key.transpose(-1, -2), value, attention_mask)
        return self.resid_dropout(self.c_proj(out)), key_value


class CairnMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = config.n_inner or 4 * config.n_embd
        self.c_fc = nn.Linear(config.n_embd, inner)
        self.c_proj = nn.Linear(inner, config.n_embd)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class CairnBlock(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = CairnAttention(config, layer_idx)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = CairnMLP(config)

    def forward(self, hidden_states, layer_past=None, attention_mask=None):
        attended, present = self.attn(self.ln_1(hidden_states), layer_past, attention_mask)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp(self.ln_2(hidden_states)), present


class CairnPreTrainedModel(PreTrainedModel):
    config_class = CairnConfig
    base_model_prefix = "transformer"
    _no_split_modules = ["CairnBlock"]


class CairnModel(CairnPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList([CairnBlock(config, i) for i in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        full = torch.tril(torch.ones((config.n_positions, config.n_positions), dtype=torch.bool))
        self.register_buffer("bias", full, persistent=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.wte

    def set_input_embeddings(self, table):
        self.wte = table

    def forward(
        self, input_ids=None, past_key_values=None, attention_mask=None, position_ids=None, inputs_embeds=None,
        use_cache=None, **kwargs,
    ):  # fmt: skip
        if inputs_embeds is None:
            inputs_embeds = self.wte(input_ids)
        tokens = inputs_embeds.shape[1]
        past = past_key_values[0].size(-2) if past_key_values else 0
        past_key_values = past_key_values or [None] * len(self.h)
        if position_ids is None:
            position_ids = torch.arange(past, past + tokens, dtype=torch.long, device=inputs_embeds.device)[None]
        mask = self.bias[None, past : past + tokens, : past + tokens].unsqueeze(2)
        hidden_states = self.drop(inputs_embeds + self.wpe(position_ids))
        presents = [] if use_cache else None
        for block, layer_past in zip(self.h, past_key_values, strict=False):
            hidden_states, present = block(hidden_states, layer_past, mask)
            if use_cache:
                presents.append(present)
        return BaseModelOutputWithPast(last_hidden_state=self.ln_f(hidden_states), past_key_values=presents)


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

    def forward(self, input_ids=None, labels=None, **kwargs):
        out = self.transformer(input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.lm_head(out[0]), past_key_values=out.past_key_values)
