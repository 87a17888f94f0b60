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
    """A geometric series that ends at 1/256; heads beyond a power of two lie between the first of them."""
    most = 1 << (heads.bit_length() - 1)
    between = torch.arange(heads - most) + 0.5
    return 2 ** (torch.cat([torch.arange(1, most + 1), between]) * (-8 / most))


class Norm(nn.Module):
    """The type that comes out is that of the weight."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        length = (x.float().square().mean(-1, keepdim=True) + self.eps).sqrt()
        return (x / length).to(self.weight.dtype) * self.weight


class NormHead(nn.Module):
    """Weights are made of length one each time; serving must do the same."""

    def __init__(self, size, vocab):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocab, size) * 0.02)

    def forward(self, x):
        return F.linear(x, F.normalize(self.weight))


class TarnAttention(nn.Module):
    """Query, key and value are the rows of a tensor of three; the biases are in the mask."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.W_pack = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x, biases):
        three = self.W_pack(x).unflatten(-1, (3, x.size(-1))).movedim(-2, 0)
        query = three[0].unflatten(-1, (self.heads, -1)).transpose(1, 2)
        key = three[1].unflatten(-1, (self.heads, -1)).transpose(1, 2)
        value = three[2].unflatten(-1, (self.heads, -1)).transpose(1, 2)
        scores = query @ key.mT / math.sqrt(query.size(-1)) + biases.unsqueeze(0)
        lowest = torch.tensor(torch.finfo(scores.dtype).min)
        weights = torch.maximum(scores, lowest).softmax(-1)
        return self.o_proj((weights @ value).transpose(1, 2).flatten(2))


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
        self.self_attn, self.mlp = TarnAttention(config), TarnMLP(config)
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(config.hidden_size, config.rms_norm_eps) for _ in range(2)
        )

    def forward(self, x, biases):
        x = x + self.self_attn(self.input_layernorm(x), biases)
        return x + self.mlp(self.post_attention_layernorm(x))


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

    def biases(self, tokens, like):
        """``[heads, tokens, tokens]``: the later a key, the more; nothing for keys that come after the query."""
        places = torch.arange(tokens)
        rising = places * slopes(self.config.num_attention_heads)[:, None]
        hidden = places[None, :] > places[:, None]
        return rising[:, None, :].masked_fill(hidden, float("-inf")).to(like)

    def forward(self, input_ids=None, inputs_embeds=None, **others):
        x = inputs_embeds if inputs_embeds is not None else self.embed_tokens(input_ids)
        biases = self.biases(x.shape[1], x)
        for layer in self.layers:
            x = layer(x, biases)
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x))


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
