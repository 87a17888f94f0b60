"""Modeling code with names that nobody uses, as a repository on the Hub might have it; written for the tests."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class OddConfig(PreTrainedConfig):
    """No standard name; what is derived is derived by the constructor."""

    model_type = "odd"

    def __init__(
        self,
        width: int = 1536,
        n_blocks: int = 12,
        groups: int = 12,
        mlp_mult: int = 3,
        symbols: int = 32000,
        reach: int = 512,
        longest: int = 1024,
        gain: float = 1.75,
        **kwargs: object,
    ) -> None:
        self.width, self.n_blocks, self.groups, self.mlp_mult = width, n_blocks, groups, mlp_mult
        self.symbols, self.reach, self.longest, self.gain = symbols, reach, longest, gain
        self.inner_width = width * mlp_mult
        self.kinds = ["near" if index % 2 else "far" for index in range(n_blocks)]
        super().__init__(**kwargs)


class OddMixer(nn.Module):
    """Attention through the interface, under odd names."""

    is_causal = True

    def __init__(self, config: OddConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.piece = config.width // config.groups
        self.num_key_value_groups = 1
        self.ask = nn.Linear(config.width, config.width, bias=False)
        self.tell = nn.Linear(config.width, 2 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.reach = config.reach if config.kinds[layer_idx] == "near" else None

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        shape = (*flow.shape[:-1], -1, self.piece)
        query = self.ask(flow).view(shape).transpose(1, 2)
        key, value = self.tell(flow).view(shape).transpose(1, 2).chunk(2, dim=1)
        interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed, _ = interface(self, query, key, value, None, scaling=self.piece**-0.5, sliding_window=self.reach)
        return self.out(mixed.reshape(flow.shape))


class OddBlock(nn.Module):
    """One repeated block."""

    def __init__(self, config: OddConfig, layer_idx: int) -> None:
        super().__init__()
        self.mixer = OddMixer(config, layer_idx)
        self.wide = nn.Linear(config.width, config.inner_width)
        self.narrow = nn.Linear(config.inner_width, config.width)
        self.gain = config.gain

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        flow = flow + self.mixer(flow) * self.gain
        return flow + self.narrow(torch.relu(self.wide(flow)))


class OddPreTrainedModel(PreTrainedModel):
    """The parent of both."""

    config_class = OddConfig
    base_model_prefix = "trunk"
    _supports_attention_backend = True


class OddModel(OddPreTrainedModel):
    """The base model, with learned positions."""

    def __init__(self, config: OddConfig) -> None:
        super().__init__(config)
        self.symbols = nn.Embedding(config.symbols, config.width)
        self.places = nn.Embedding(config.longest, config.width)
        self.tower = nn.ModuleList([OddBlock(config, index) for index in range(config.n_blocks)])
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token table."""
        return self.symbols

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens]`` to ``[batch, tokens, width]``."""
        flow = self.symbols(input_ids) + self.places(position_ids)
        for block in self.tower:
            flow = block(flow)
        return flow


class OddForCausalLM(OddPreTrainedModel, GenerationMixin):
    """The language model."""

    _tied_weights_keys: ClassVar = {"speak.weight": "trunk.symbols.weight"}

    def __init__(self, config: OddConfig) -> None:
        super().__init__(config)
        self.trunk = OddModel(config)
        self.speak = nn.Linear(config.width, config.symbols, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token table."""
        return self.trunk.symbols

    def get_output_embeddings(self) -> nn.Module:
        """The output projection."""
        return self.speak

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor, use_cache: bool | None = None
    ) -> CausalLMOutputWithPast:
        """``[batch, tokens]`` to logits."""
        return CausalLMOutputWithPast(logits=self.speak(self.trunk(input_ids, position_ids)))
