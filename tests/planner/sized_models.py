"""A model whose sizes stand where no usual name tells: in a list, in a dictionary, and as a count of experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast


class SizedConfig(PreTrainedConfig):
    model_type = "sized"

    def __init__(
        self, widths: Any = (1536, 512, 1536), inside: Any = None, banks: int = 32, heads: int = 20, **kwargs: Any
    ) -> None:
        self.channels, self.heads, self.symbols = 64 * heads, heads, 2000
        self.widths = list(widths)
        self.inside = inside or {"gate": {"rank": 640, "scale": 0.5}, "reach": 4096}
        self.banks = banks
        super().__init__(**kwargs)


class SizedModel(PreTrainedModel, GenerationMixin):
    """Takes tokens; three products of the widths in the list, one of the rank in the dictionary, and banks of rows."""

    config_class = SizedConfig
    base_model_prefix = "body"

    def __init__(self, config: SizedConfig) -> None:
        super().__init__(config)
        if config.channels != 64 * config.heads:
            raise ValueError(f"{config.channels} channels, expected 64 for each of {config.heads} heads")
        self.body = nn.Embedding(config.symbols, config.channels)
        self.ups = nn.ModuleList(nn.Linear(config.channels, width, bias=False) for width in config.widths)
        self.downs = nn.ModuleList(nn.Linear(width, config.channels, bias=False) for width in config.widths)
        rank = config.inside["gate"]["rank"]
        self.left, self.right = nn.Linear(config.channels, rank), nn.Linear(rank, config.channels)
        self.banks = nn.Parameter(torch.empty(config.banks, config.channels, 960))
        self.head = nn.Linear(config.channels, config.symbols, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.body

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutputWithPast:
        hidden = self.body(input_ids)
        for up, down in zip(self.ups, self.downs, strict=True):
            hidden = hidden + down(F.silu(up(hidden)))
        hidden = hidden + self.right(self.left(hidden)) * self.config.inside["gate"]["scale"]
        hidden = hidden + torch.einsum("btc,ncd->bt", hidden, self.banks)[..., None]
        return CausalLMOutputWithPast(logits=self.head(hidden))
