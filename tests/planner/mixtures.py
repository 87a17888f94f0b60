"""Mixtures of experts with names that nobody uses, as repositories on the Hub might have them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from odd_models import OddConfig, OddForCausalLM, OddModel
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


class MixedConfig(OddConfig):
    """Small, with ``crowd`` networks of which each token visits ``picks``."""

    model_type = "mixed"

    def __init__(self, crowd: int = 6, picks: int = 2, **kwargs: object) -> None:
        sizes = {"width": 48, "n_blocks": 3, "groups": 4, "symbols": 64, "reach": 12, "longest": 128}
        self.crowd, self.picks = crowd, picks
        super().__init__(**{**sizes, **kwargs})


class MixedMixer(nn.Module):
    """Attention whose heads can go over ranks."""

    is_causal = True

    def __init__(self, config: MixedConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        self.piece = config.width // config.groups
        self.ask, self.tell, self.show, self.out = (
            nn.Linear(config.width, config.width, bias=False) for _ in range(4)
        )
        self.reach = config.reach if config.kinds[layer_idx] == "near" else None

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        shape = (*flow.shape[:-1], -1, self.piece)
        query, key, value = (of(flow).view(shape).transpose(1, 2) for of in (self.ask, self.tell, self.show))
        interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed, _ = interface(self, query, key, value, None, scaling=self.piece**-0.5, sliding_window=self.reach)
        return self.out(mixed.reshape(*flow.shape[:-1], -1))


class Member(nn.Module):
    """One expert."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[rows, width]`` to the same."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class ListOfMembers(nn.Module):
    """Experts in a list, visited in a loop; returns the router's logits as well."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.switch = nn.Linear(config.width, config.crowd, bias=False)
        self.crew = nn.ModuleList([Member(config.width, 40) for _ in range(config.crowd)])

    def forward(self, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and logits."""
        rows = flow.reshape(-1, flow.shape[-1])
        logits = self.switch(rows)
        share, picked = torch.topk(F.softmax(logits, dim=-1, dtype=torch.float), self.picks, dim=-1)
        share = (share / share.sum(-1, keepdim=True)).to(rows.dtype)
        final = torch.zeros_like(rows)
        for number, member in enumerate(self.crew):
            row, slot = torch.where(picked == number)
            if row.numel() == 0:
                continue
            final.index_add_(0, row, member(rows[row]) * share[row, slot, None])
        return final.view_as(flow), logits


class Pool(nn.Module):
    """Experts in three tensors with biases, under a class of their own that nobody decorated."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.lift = nn.Parameter(torch.empty(config.crowd, config.width, 80))
        self.lift_offset = nn.Parameter(torch.empty(config.crowd, 80))
        self.fall = nn.Parameter(torch.empty(config.crowd, 40, config.width))
        self.fall_offset = nn.Parameter(torch.empty(config.crowd, config.width))

    def forward(self, picked: torch.Tensor, share: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """``[tokens, width]``."""
        final = torch.zeros_like(rows)
        for number in torch.unique(picked):
            row, slot = torch.where(picked == number)
            up, gate = (rows[row] @ self.lift[number] + self.lift_offset[number]).chunk(2, -1)
            hidden = F.gelu(gate.clamp(max=0.2), approximate="tanh") * up.clamp(-0.2, 0.2)
            each = hidden @ self.fall[number] + self.fall_offset[number]
            final.index_add_(0, row, each * share[row, slot, None])
        return final


class BiasedBlock(nn.Module):
    """A router inline, a correction bias on the block, a scale of its own, a shared expert behind a gate."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks, self.loudness = config.picks, 2.826
        self.switch = nn.Parameter(torch.empty(config.crowd, config.width))
        self.register_buffer("correction_bias", torch.zeros(config.crowd))
        self.pool = Pool(config)
        self.everyone = Member(config.width, 24)
        self.door = nn.Linear(config.width, 1, bias=False)

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        rows = flow.reshape(-1, flow.shape[-1])
        scores = torch.tanh(F.linear(rows.float(), self.switch.float()) / 3.0).mul(3.0).sigmoid()
        picked = torch.topk(scores + self.correction_bias, self.picks, dim=-1, sorted=False)[1]
        share = scores.gather(1, picked)
        share = (share / share.sum(-1, keepdim=True) * self.loudness).to(rows.dtype)
        final = self.pool(picked, share, rows) + self.door(rows).sigmoid() * self.everyone(rows)
        return final.view_as(flow)


class MixedBlock(nn.Module):
    """One repeated block; dense layers among sparse ones."""

    def __init__(self, config: MixedConfig, layer_idx: int, mixture: type[nn.Module]) -> None:
        super().__init__()
        self.mixer = MixedMixer(config, layer_idx)
        self.feed = mixture(config) if layer_idx else Member(config.width, 64)

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        flow = flow + self.mixer(flow)
        fed = self.feed(flow)
        return flow + (fed[0] if isinstance(fed, tuple) else fed)


class ListedModel(OddModel):
    """With `ListOfMembers`."""

    mixture: type[nn.Module] = ListOfMembers
    config_class = MixedConfig

    def __init__(self, config: MixedConfig) -> None:
        super().__init__(config)
        self.tower = nn.ModuleList([MixedBlock(config, n, self.mixture) for n in range(config.n_blocks)])

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None) -> BaseModelOutputWithPast:
        """``[batch, tokens]`` to ``[batch, tokens, width]``."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        flow = self.symbols(input_ids) + self.places(position_ids)
        for block in self.tower:
            flow = block(flow)
        return BaseModelOutputWithPast(last_hidden_state=flow)


class BiasedModel(ListedModel):
    """With `BiasedBlock`."""

    mixture = BiasedBlock


class ListedForCausalLM(OddForCausalLM):
    """The language model of `ListedModel`."""

    config_class = MixedConfig
    trunk_class: type[OddModel] = ListedModel

    def __init__(self, config: MixedConfig) -> None:
        super().__init__(config)
        self.trunk = self.trunk_class(config)
        self.post_init()

    def forward(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, use_cache: bool | None = None
    ) -> CausalLMOutputWithPast:
        """``[batch, tokens]`` to logits."""
        return CausalLMOutputWithPast(logits=self.speak(self.trunk(input_ids, position_ids)[0]))


class BiasedForCausalLM(ListedForCausalLM):
    """The language model of `BiasedModel`."""

    trunk_class = BiasedModel
