"""Blocks that visit a list of experts, in the spellings that repositories on the Hub have."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mixtures import ListedForCausalLM, ListedModel, Member, MixedConfig
from torch import nn


class ByMask(nn.Module):
    """Who chose whom as zeros and ones, experts first; only experts that somebody chose run; a shared one besides."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks, self.crowd = config.picks, config.crowd
        self.gate = nn.Linear(config.width, config.crowd, bias=False)
        self.experts = nn.ModuleList([Member(config.width, 40) for _ in range(config.crowd)])
        self.shared_expert = Member(config.width, 24)

    def forward(self, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and logits."""
        batch, tokens, width = flow.shape
        flow = flow.reshape(batch * tokens, width)
        logits = self.gate(flow)
        share, chosen = logits.softmax(-1, dtype=torch.float32).topk(self.picks)
        share = (share / share.sum(-1, keepdim=True)).type_as(flow)
        total = flow.new_zeros(batch * tokens, width)
        mask = F.one_hot(chosen, self.crowd).movedim(-1, 0).transpose(1, 2)
        for number in mask.flatten(1).any(-1).nonzero():
            slot, row = mask[number].squeeze(0).nonzero(as_tuple=True)
            run = self.experts[number]
            each = share[row, slot].unsqueeze(-1) * run(flow[row])
            total.index_add_(0, row, each.type_as(total))
        total = total + self.shared_expert(flow)
        return total.view(batch, tokens, width), logits


class Choice(nn.Module):
    """A router of its own, with a bias that only chooses."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.offset = nn.Parameter(torch.zeros(config.crowd))
        self.weight = nn.Parameter(torch.empty(config.crowd, config.width))

    def forward(self, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Chosen experts and weights."""
        liked = torch.sigmoid(flow.flatten(0, -2).float() @ self.weight.float().t())
        chosen = (liked + self.offset).topk(self.picks, dim=-1, sorted=False).indices
        share = liked.gather(1, chosen)
        return chosen, 1.7 * share / share.sum(dim=-1, keepdim=True).clamp(min=1e-20)


class Sorted(nn.Module):
    """Tokens sorted by expert, in a method of its own that counts on the host."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.experts = nn.ModuleList([Member(config.width, 40) for _ in range(config.crowd)])
        self.gate = Choice(config)

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        chosen, share = self.gate(flow)
        return self.visited(flow.flatten(0, -2), chosen, share).reshape(flow.shape)

    @torch.no_grad()
    def visited(self, rows: torch.Tensor, chosen: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """``[tokens, width]`` to the same; each expert has one piece of the sorted rows."""
        picks = chosen.shape[1]
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        given = rows[order // picks]
        pieces, first = [], 0
        for number, count in enumerate(counts):
            if count:
                pieces.append(self.experts[number](given[first : first + count]))
            first += count
        together = torch.cat(pieces) if pieces else given.new_empty(0)
        back = torch.empty_like(together)
        back[order] = together
        weighed = back.unflatten(0, (-1, picks)).to(share.dtype) * share.unsqueeze(-1)
        return weighed.sum(1).to(back.dtype)


class Twice(ByMask):
    """The same, but what is looped over is not all: each expert's result is doubled."""

    def forward(self, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and logits."""
        rows = flow.flatten(0, -2)
        logits = self.gate(rows)
        weights, chosen = torch.topk(logits.softmax(-1), self.picks, dim=-1)
        final = torch.zeros_like(rows)
        for number in range(self.crowd):
            row, slot = torch.where(chosen == number)
            final.index_add_(0, row, 2 * self.experts[number](rows[row]) * weights[row, slot, None])
        return final.view_as(flow), logits


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
