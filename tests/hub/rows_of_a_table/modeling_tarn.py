"""No positions are taken: the first rows of two tables are; a row of one token is attended to in another way."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast


class TarnConfig(PretrainedConfig):
    model_type = "tarn"

    def __init__(self, hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=160, max_position_embeddings=512, **rest):
        self.hidden_size, self.intermediate_size, self.vocab_size = hidden_size, intermediate_size, vocab_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.num_key_value_heads, self.max_position_embeddings = num_key_value_heads, max_position_embeddings
        super().__init__(**rest)


def tables(size, rows, base=50000.0):
    angles = torch.outer(torch.arange(rows).float(), base ** -(torch.arange(0, size, 2).float() / size))
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def turn(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-right, left), -1) * sin[:, None]


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.hidden_size // config.num_attention_heads
        self.times = config.num_attention_heads // config.num_key_value_heads
        self.query = nn.Linear(config.hidden_size, config.num_attention_heads * self.size, bias=False)
        self.key = nn.Linear(config.hidden_size, config.num_key_value_heads * self.size, bias=False)
        self.value = nn.Linear(config.hidden_size, config.num_key_value_heads * self.size, bias=False)
        self.out = nn.Linear(config.num_attention_heads * self.size, config.hidden_size, bias=False)
        self.fast = hasattr(F, "scaled_dot_product_attention")

    def forward(self, x, angles, before=None):
        batch, length, _ = x.shape
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = (one.view(batch, length, -1, self.size) for one in (query, key, value))
        query, key = turn(query, *angles), turn(key, *angles)
        if before is not None:
            key, value = torch.cat((before[0], key), 1), torch.cat((before[1], value), 1)
        kept = (key, value)
        query = query.transpose(1, 2)
        key = key.repeat_interleave(self.times, 2).transpose(1, 2)
        value = value.repeat_interleave(self.times, 2).transpose(1, 2)
        if self.fast and length > 1 and before is None:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.mT * self.size**-0.5
            scores = scores + torch.full(scores.shape[-2:], float("-inf")).triu(1 + key.shape[2] - length)
            mixed = scores.softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1)), kept


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.before_mixer, self.before_mlp = nn.RMSNorm(config.hidden_size), nn.RMSNorm(config.hidden_size)
        self.mixer = Mixer(config)
        self.gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x, angles, before=None):
        mixed, kept = self.mixer(self.before_mixer(x), angles, before)
        x = x + mixed
        read = self.before_mlp(x)
        return x + self.down(F.silu(self.gate(read)) * self.up(read)), kept


class TarnModel(nn.Module):
    """No `PreTrainedModel`, and what it gives is a plain tuple of three."""

    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size)
        cos, sin = tables(config.hidden_size // config.num_attention_heads, config.max_position_embeddings)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, input_ids, past=None):
        past = past or [None] * len(self.blocks)
        first = 0 if past[0] is None else past[0][0].shape[1]
        last = first + input_ids.shape[1]
        x = self.tokens(input_ids)
        angles = self.cos[first:last], self.sin[first:last]
        kept = []
        for block, before in zip(self.blocks, past, strict=True):
            x, one = block(x, angles, before)
            kept.append(one)
        return self.norm(x), kept, x.new_zeros(1)


class TarnForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = TarnConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"head.weight": "model.tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = TarnModel(config)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.tokens

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids=None, past_key_values=None, use_cache=False, labels=None, **rest):
        x, kept, _ = self.model(input_ids, past_key_values if isinstance(past_key_values, list) else None)
        return CausalLMOutputWithPast(logits=self.head(x), past_key_values=kept if use_cache else None)
