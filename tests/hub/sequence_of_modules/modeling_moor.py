"""Query, key and value stay in one tensor until the scores; attention and MLP read the same norm; the rest is in a row."""

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_moor import MoorConfig

try:
    from flash_attn.modules.mha import FlashSelfAttention as FastScores
except ImportError:
    FastScores = None


class PackedRope(nn.Module):
    """Turns the first channels of queries and keys inside ``[batch, tokens, 3, heads, size]``.

    The tables are no buffers: they are written when a text comes that they are too short for.
    """

    def __init__(self, channels, theta=10000.0):
        super().__init__()
        self.channels = channels
        pairs = torch.arange(channels // 2, dtype=torch.float32)
        self.register_buffer("speed", theta ** (-2 * pairs / channels), persistent=False)
        self.table = None

    def rows(self, first, last, packed):
        table = self.table
        if table is None or len(table) < last or table.device != packed.device:
            angles = torch.arange(last, dtype=torch.float32, device=packed.device).outer(self.speed.to(packed.device))
            table = self.table = torch.stack([angles.cos(), angles.sin()], dim=1)
        return table[first:last, :, None].unbind(1)

    def forward(self, packed, first=0):
        cosine, sine = self.rows(first, first + packed.size(1), packed)
        turned, unturned = packed.tensor_split([self.channels], dim=-1)
        done = []
        for which in range(2):
            even, odd = turned.select(2, which).float().tensor_split(2, dim=-1)
            both = torch.cat([cosine * even - sine * odd, cosine * odd + sine * even], -1).to(packed.dtype)
            done.append(torch.cat([both, unturned.select(2, which)], -1))
        done.append(packed.select(2, 2))
        return torch.stack(done, dim=2)


class PlainScores(nn.Module):
    """Softmax attention on the packed tensor; later tokens are made so small that nothing of them is left."""

    def __init__(self, causal=True):
        super().__init__()
        self.causal = causal
        self.drop = nn.Dropout(0.0)

    def forward(self, packed):
        query, key = packed[:, :, :2].float().unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", query * query.size(-1) ** -0.5, key)
        if self.causal:
            later = scores.new_full(scores.shape[-2:], -10000.0)
            scores = scores + later.triu(diagonal=1)
        weights = self.drop(scores.softmax(-1).to(packed.dtype))
        return torch.einsum("bhqk,bkhd->bqhd", weights, packed[:, :, 2])


class Mixer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.n_head
        self.rope = PackedRope(config.rotary_dim) if config.rotary_dim else None
        self.Wqkv, self.out_proj = nn.Linear(config.n_embd, 3 * config.n_embd), nn.Linear(config.n_embd, config.n_embd)
        scores = PlainScores if FastScores is None or not config.fast_kernels else FastScores
        self.scores = scores(causal=True)

    def forward(self, x):
        packed = self.Wqkv(x).unflatten(-1, (3, self.heads, -1))
        if self.rope is not None:
            packed = self.rope(packed)
        return self.out_proj(self.scores(packed).flatten(-2))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        inner = 4 * config.n_embd if config.n_inner is None else config.n_inner
        self.fc1, self.fc2 = nn.Linear(config.n_embd, inner), nn.Linear(inner, config.n_embd)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x), approximate="tanh"))


class SideBySide(nn.Module):
    """One norm for both, and one sum of three."""

    def __init__(self, config, place):
        super().__init__()
        self.place = place
        self.ln = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.mlp, self.mixer = MLP(config), Mixer(config)
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        read = self.ln(x)
        return x + self.drop(self.mlp(read)) + self.drop(self.mixer(read))


class Entry(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)

    def forward(self, input_ids):
        return self.wte(input_ids.flatten(0, -2))


class Exit(nn.Module):
    """The last norm belongs to the head."""

    def __init__(self, config):
        super().__init__()
        self.ln = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.linear = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, x):
        return self.linear(self.ln(x)).float()


class MoorPreTrainedModel(PreTrainedModel):
    config_class = MoorConfig
    base_model_prefix = "transformer"


class MoorModel(MoorPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embd = Entry(config)
        self.h = nn.ModuleList(SideBySide(config, place) for place in range(config.n_layer))
        self.post_init()

    def get_input_embeddings(self):
        return self.embd.wte

    def set_input_embeddings(self, table):
        self.embd.wte = table

    def forward(self, input_ids, past_key_values=None, attention_mask=None):
        x = self.embd(input_ids)
        for block in self.h:
            x = block(x)
        return x


class MoorForCausalLM(MoorPreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.transformer, self.lm_head = MoorModel(config), Exit(config)
        self.post_init()

    def get_output_embeddings(self):
        return self.lm_head.linear

    def set_output_embeddings(self, head):
        self.lm_head.linear = head

    def forward(self, input_ids, past_key_values=None, attention_mask=None, labels=None, **others):
        scores = self.lm_head(self.transformer(input_ids, past_key_values, attention_mask))
        loss = None if labels is None else self.loss_function(scores, labels, self.config.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=scores, past_key_values=past_key_values)
