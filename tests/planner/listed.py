"""Blocks that visit a list of experts, in the spellings that repositories on the Hub have."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mixtures import ListedForCausalLM, ListedModel, Member, MixedConfig
from torch import nn


class ByMask(nn.Module):
    """A one-hot mask, turned, and only experts that somebody chose; a shared expert behind a gate."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.top_k, self.num_experts = config.picks, config.crowd
        self.gate = nn.Linear(config.width, config.crowd, bias=False)
        self.experts = nn.ModuleList([Member(config.width, 40) for _ in range(config.crowd)])
        self.shared_expert = Member(config.width, 24)

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and logits."""
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, hidden_dim)
        router_logits = self.gate(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected_experts = torch.topk(routing_weights, self.top_k, dim=-1)
        routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        routing_weights = routing_weights.to(hidden_states.dtype)
        final_hidden_states = torch.zeros(
            (batch_size * sequence_length, hidden_dim), dtype=hidden_states.dtype, device=hidden_states.device
        )
        expert_mask = torch.nn.functional.one_hot(selected_experts, num_classes=self.num_experts).permute(2, 1, 0)
        expert_hit = torch.greater(expert_mask.sum(dim=(-1, -2)), 0).nonzero()
        for expert_idx in expert_hit:
            expert_layer = self.experts[expert_idx]
            idx, top_x = torch.where(expert_mask[expert_idx].squeeze(0))
            current_state = hidden_states[None, top_x].reshape(-1, hidden_dim)
            current_hidden_states = expert_layer(current_state) * routing_weights[top_x, idx, None]
            final_hidden_states.index_add_(0, top_x, current_hidden_states.to(hidden_states.dtype))
        final_hidden_states = final_hidden_states + self.shared_expert(hidden_states)
        return final_hidden_states.reshape(batch_size, sequence_length, hidden_dim), router_logits


class Choice(nn.Module):
    """A router of its own, with a bias that only chooses."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.top_k = config.picks
        self.weight = nn.Parameter(torch.empty(config.crowd, config.width))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(config.crowd))

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Chosen experts and weights."""
        rows = hidden_states.view(-1, hidden_states.shape[-1])
        scores = F.linear(rows.float(), self.weight.float()).sigmoid()
        _, topk_idx = torch.topk(scores + self.e_score_correction_bias, self.top_k, dim=-1, sorted=False)
        topk_weight = scores.gather(1, topk_idx)
        return topk_idx, topk_weight / (topk_weight.sum(-1, keepdim=True) + 1e-20) * 1.7


class Sorted(nn.Module):
    """Tokens sorted by expert, in a method of its own that counts on the host."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.gate = Choice(config)
        self.experts = nn.ModuleList([Member(config.width, 40) for _ in range(config.crowd)])

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        orig_shape = hidden_states.shape
        topk_idx, topk_weight = self.gate(hidden_states)
        hidden_states = hidden_states.view(-1, hidden_states.shape[-1])
        return self.moe_infer(hidden_states, topk_idx, topk_weight).view(*orig_shape)

    @torch.no_grad()
    def moe_infer(self, x: torch.Tensor, topk_ids: torch.Tensor, topk_weight: torch.Tensor) -> torch.Tensor:
        """``[tokens, width]`` to the same."""
        cnts = topk_ids.new_zeros((topk_ids.shape[0], len(self.experts)))
        cnts.scatter_(1, topk_ids, 1)
        tokens_per_expert = cnts.sum(dim=0).cpu().numpy()
        idxs = topk_ids.view(-1).argsort()
        sorted_tokens = x[idxs // topk_ids.shape[1]]
        outputs, start_idx = [], 0
        for i, num_tokens in enumerate(tokens_per_expert):
            end_idx = start_idx + num_tokens
            if num_tokens == 0:
                continue
            outputs.append(self.experts[i](sorted_tokens[start_idx:end_idx]))
            start_idx = end_idx
        outs = torch.cat(outputs, dim=0) if outputs else sorted_tokens.new_empty(0)
        new_x = torch.empty_like(outs)
        new_x[idxs] = outs
        return (
            new_x.view(*topk_ids.shape, -1)
            .type(topk_weight.dtype)
            .mul_(topk_weight.unsqueeze(dim=-1))
            .sum(dim=1)
            .type(new_x.dtype)
        )


class Twice(ByMask):
    """The same, but what is looped over is not all: each expert's result is doubled."""

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and logits."""
        rows = hidden_states.view(-1, hidden_states.shape[-1])
        router_logits = self.gate(rows)
        weights, chosen = torch.topk(router_logits.softmax(-1), self.top_k, dim=-1)
        final = torch.zeros_like(rows)
        for number in range(self.num_experts):
            row, slot = torch.where(chosen == number)
            final.index_add_(0, row, 2 * self.experts[number](rows[row]) * weights[row, slot, None])
        return final.view_as(hidden_states), router_logits


class ByMaskModel(ListedModel):
    """With `ByMask`."""

    mixture = ByMask


class ByMaskForCausalLM(ListedForCausalLM):
    """The language model of `ByMaskModel`."""

    trunk_class = ByMaskModel


class SortedModel(ListedModel):
    """With `Sorted`."""

    mixture = Sorted


class SortedForCausalLM(ListedForCausalLM):
    """The language model of `SortedModel`."""

    trunk_class = SortedModel


class TwiceModel(ListedModel):
    """With `Twice`."""

    mixture = Twice


class TwiceForCausalLM(ListedForCausalLM):
    """The language model of `TwiceModel`."""

    trunk_class = TwiceModel
