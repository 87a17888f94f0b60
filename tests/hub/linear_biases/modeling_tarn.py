"""No positions but linear biases, made for every prompt; one packed projection; a head whose rows are made of length one."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_tarn import TarnConfig


def slopes(heads):
    nearest = 2 ** math.floor(math.log2(heads))
    found = [2 ** (-8 * (i + 1) / nearest) for i in range(nearest)]
    return found + [2 ** (-4 * (2 * i + 1) / nearest) for i in range(heads - nearest)]


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.epsilon)
        return self.weight * hidden_states.to(self.weight.dtype)


class NormHead(nn.Module):
    """Weights are made of length one each time; serving must do the same."""

    def __init__(self, size, vocab):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, size))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, hidden_states):
        return F.linear(hidden_states, F.normalize(self.weight))


class TarnAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_dim = config.hidden_size // self.num_heads
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask):
        bsz, q_len, width = hidden_states.size()
        proj = self.W_pack(hidden_states)
        proj = proj.unflatten(-1, (3, width)).unsqueeze(0).transpose(0, -2).squeeze(-2)
        query = proj[0].view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
        key = proj[1].view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
        value = proj[2].view(bsz, q_len, self.num_heads, self.head_dim).transpose(1, 2)
        weights = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(self.head_dim)
        weights = weights + attention_mask[None]
        weights = torch.max(weights, torch.tensor(torch.finfo(weights.dtype).min))
        weights = torch.nn.functional.softmax(weights, dim=-1)
        mixed = torch.matmul(weights, value).transpose(1, 2)
        return self.o_proj(mixed.reshape(bsz, q_len, width))


class TarnMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TarnLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = TarnAttention(config)
        self.mlp = TarnMLP(config)
        self.input_layernorm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = Norm(config.hidden_size, config.rms_norm_eps)

    def forward(self, hidden_states, attention_mask):
        hidden_states = hidden_states + self.self_attn(self.input_layernorm(hidden_states), attention_mask)
        return hidden_states + self.mlp(self.post_attention_layernorm(hidden_states))


class TarnPreTrainedModel(PreTrainedModel):
    config_class = TarnConfig
    base_model_prefix = "model"


class TarnModel(TarnPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([TarnLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def get_input_embeddings(self):
        return self.embed_tokens

    def get_alibi_mask(self, tokens, like):
        slope = torch.tensor(slopes(self.config.num_attention_heads))[:, None, None]
        bias = slope * torch.arange(tokens)[None, None, :].expand(self.config.num_attention_heads, -1, -1)
        future = torch.triu(torch.full((tokens, tokens), float("-inf")), 1)
        return (future[None] + bias).to(like)

    def forward(self, input_ids=None, inputs_embeds=None, **kwargs):
        hidden_states = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = self.get_alibi_mask(hidden_states.shape[1], hidden_states)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states))


class TarnForCausalLM(TarnPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = TarnModel(config)
        self.lm_head = NormHead(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids=None, **kwargs):
        out = self.model(input_ids=input_ids, **kwargs)
        return CausalLMOutputWithPast(logits=self.lm_head(out.last_hidden_state))
