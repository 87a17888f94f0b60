"""Models whose table, layers and head lie in one class, written to a folder as the Hub has them."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from hfspeed.planner.load import Subject, load

CONFIGURATION = """
from transformers import PretrainedConfig


class WholeConfig(PretrainedConfig):
    model_type = "whole"

    def __init__(self, vocab_size=96, n_embd=64, n_layer=2, n_head=4, block_size=128, **kwargs):
        self.vocab_size, self.block_size = vocab_size, block_size
        self.n_embd, self.n_layer, self.n_head = n_embd, n_layer, n_head
        super().__init__(**kwargs)
"""
PARTS = """
import torch
import torch.nn.functional as F
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_whole import WholeConfig


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.norm = nn.LayerNorm(config.n_embd)
        self.qkv, self.out = nn.Linear(config.n_embd, 3 * config.n_embd), nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (one.view(B, T, self.n_head, -1).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(B, T, C))


class WholeForCausalLM(PreTrainedModel):
    config_class = WholeConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.n_embd)
        self.places = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.norm = nn.LayerNorm(config.n_embd)
        HEAD
        self.post_init()

    def helper(self, hidden):
        return self.head(self.norm(hidden)) / 2

    def forward(self, input_ids, labels=None):
        count = input_ids.shape[1]
        if count > self.config.block_size:
            raise ValueError("too long")
        places = torch.arange(count, device=input_ids.device)
        x = self.words(input_ids) + self.places(places)
        for block in self.h:
            x = block(x)
"""
HEAD = "self.head = nn.Linear(config.n_embd, config.vocab_size)"


LOOP = """        for block in self.h:
            x = block(x)
"""


def written(folder: Path, end: str, head: str = HEAD, loop: str = LOOP) -> Subject:
    """A model whose forward ends so: from ``x``, what the layers gave, to what it returns."""
    body = (
        PARTS.replace("HEAD", head).replace(LOOP, loop) + textwrap.indent(textwrap.dedent(end).strip(), " " * 8) + "\n"
    )
    (folder / "configuration_whole.py").write_text(CONFIGURATION)
    (folder / "modeling_whole.py").write_text(body)
    names = {"AutoConfig": "configuration_whole.WholeConfig"}
    names["AutoModelForCausalLM"] = "modeling_whole.WholeForCausalLM"
    facts = {"architectures": ["WholeForCausalLM"], "model_type": "whole", "auto_map": names}
    (folder / "config.json").write_text(json.dumps(facts))
    return load(str(folder), trust_remote_code=True)
