"""Mixtures of experts in shapes that no library has: what is not understood must be served as written, or refused."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mixtures import ListedForCausalLM, ListedModel, Member, MixedBlock, MixedConfig
from odd_models import OddModel
from torch import nn


class Keyed(nn.Module):
    """Experts in a dict, by name; what it returns is a tuple."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.switch = nn.Linear(config.width, config.crowd)
        self.crew = nn.ModuleDict({f"member_{n}": Member(config.width, 64) for n in range(config.crowd)})

    def forward(self, flow: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``[batch, tokens, width]`` to the same, and the choice."""
        rows = flow.reshape(-1, flow.shape[-1])
        share, picked = torch.topk(self.switch(rows).sigmoid(), self.picks, dim=-1)
        final = torch.zeros_like(rows)
        for number, name in enumerate(self.crew):
            row, slot = torch.where(picked == number)
            final.index_add_(0, row, self.crew[name](rows[row]) * share[row, slot, None])
        return final.view_as(flow), picked


class Inline(nn.Module):
    """Router and experts are parameters of the block itself; every token gathers the matrices of its experts."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.route = nn.Parameter(torch.empty(config.width, config.crowd))
        self.lift = nn.Parameter(torch.empty(config.crowd, config.width, 128))
        self.lift_offset = nn.Parameter(torch.empty(config.crowd, 128))
        self.fall = nn.Parameter(torch.empty(config.crowd, 64, config.width))

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        rows = flow.reshape(-1, flow.shape[-1])
        share, picked = (rows @ self.route).softmax(-1).topk(self.picks, dim=-1)
        both = torch.einsum("tw,tpwi->tpi", rows, self.lift[picked]) + self.lift_offset[picked]
        gate, up = both[..., ::2], both[..., 1::2]
        each = torch.einsum("tpi,tpiw->tpw", F.silu(gate) * up, self.fall[picked])
        return (each * share[..., None]).sum(1).view_as(flow)


class Turned(nn.Module):
    """Transposed matrices, biases in two dimensions, and one factor for each expert that no kernel knows."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(config.crowd, config.width, 64))
        self.up_shift = nn.Parameter(torch.empty(config.crowd, 64))
        self.down = nn.Parameter(torch.empty(config.crowd, 64, config.width))
        self.loudness = nn.Parameter(torch.empty(config.crowd))

    def forward(self, rows: torch.Tensor, picked: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        """``[tokens, width]``."""
        final = torch.zeros_like(rows)
        for number in picked.unique().tolist():
            row, slot = torch.where(picked == number)
            hidden = F.gelu(rows[row] @ self.up[number] + self.up_shift[number])
            final.index_add_(0, row, hidden @ self.down[number] * self.loudness[number] * share[row, slot, None])
        return final


class Loud(nn.Module):
    """With `Turned`."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.switch, self.pool = nn.Linear(config.width, config.crowd, bias=False), Turned(config)

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        rows = flow.reshape(-1, flow.shape[-1])
        share, picked = torch.topk(self.switch(rows).softmax(-1), self.picks, dim=-1)
        return self.pool(rows, picked, share).view_as(flow)


class Remembering(nn.Module):
    """A router that all layers share, and that leans towards what it gave the layer before."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.crowd, config.width))
        self.before: torch.Tensor | None = None
        self.layers = config.n_blocks - 1
        self.count = 0

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """``[tokens, width]`` to logits."""
        logits = F.linear(rows, self.weight)
        if self.count % self.layers:
            logits = logits + 0.5 * self.before
        self.before, self.count = logits, self.count + 1
        return logits


class Leaning(nn.Module):
    """With `Remembering`, which its model puts in."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.picks = config.picks
        self.crew = nn.ModuleList([Member(config.width, 64) for _ in range(config.crowd)])
        self.switch: nn.Module = nn.Identity()

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        rows = flow.reshape(-1, flow.shape[-1])
        share, picked = torch.topk(self.switch(rows).softmax(-1), self.picks, dim=-1)
        final = torch.zeros_like(rows)
        for number, member in enumerate(self.crew):
            row, slot = torch.where(picked == number)
            final.index_add_(0, row, member(rows[row]) * share[row, slot, None])
        return final.view_as(flow)


class Choosing(nn.Module):
    """Experts choose tokens: what a token gets depends on the others that are there."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__()
        self.switch = nn.Linear(config.width, config.crowd, bias=False)
        self.crew = nn.ModuleList([Member(config.width, 64) for _ in range(config.crowd)])

    def forward(self, flow: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, width]`` to the same."""
        rows = flow.reshape(-1, flow.shape[-1])
        scores = self.switch(rows).softmax(-1)
        room = max(1, rows.shape[0] // len(self.crew))
        final = torch.zeros_like(rows)
        for number, member in enumerate(self.crew):
            share, row = scores[:, number].topk(room)
            final.index_add_(0, row, member(rows[row]) * share[:, None])
        return final.view_as(flow)


class KeyedModel(ListedModel):
    """With `Keyed`."""

    mixture = Keyed


class InlineModel(ListedModel):
    """With `Inline`."""

    mixture = Inline


class LoudModel(ListedModel):
    """With `Loud`."""

    mixture = Loud


class LeaningModel(ListedModel):
    """With `Leaning`, and one router for all of them."""

    mixture = Leaning

    def __init__(self, config: MixedConfig) -> None:
        super().__init__(config)
        router = Remembering(config)
        for block in self.tower[1:]:
            assert isinstance(block, MixedBlock)
            block.feed.switch = router


class ChoosingModel(ListedModel):
    """With `Choosing`."""

    mixture = Choosing


class KeyedForCausalLM(ListedForCausalLM):
    """The language model of `KeyedModel`."""

    trunk_class: type[OddModel] = KeyedModel


class InlineForCausalLM(ListedForCausalLM):
    """The language model of `InlineModel`."""

    trunk_class = InlineModel


class LoudForCausalLM(ListedForCausalLM):
    """The language model of `LoudModel`."""

    trunk_class = LoudModel


class LeaningForCausalLM(ListedForCausalLM):
    """The language model of `LeaningModel`."""

    trunk_class = LeaningModel


class ChoosingForCausalLM(ListedForCausalLM):
    """The language model of `ChoosingModel`."""

    trunk_class = ChoosingModel


class Ends(nn.Module):
    """A matrix with a factor of its own, which is a token table's second half, or an output projection."""

    def __init__(self, inputs: int, outputs: int, table: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(table or outputs, inputs))
        self.matrix = nn.Parameter(torch.empty(outputs, inputs))
        self.loudness = nn.Parameter(torch.empty(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Ids, or ``[…, inputs]``, to ``[…, outputs]``."""
        rows = given if given.is_floating_point() else F.embedding(given, self.weight)
        return F.linear(rows, self.matrix) * self.loudness


class EndedForCausalLM(ListedForCausalLM):
    """Its token table and its output projection multiply by themselves."""

    def __init__(self, config: MixedConfig) -> None:
        super().__init__(config)
        self.trunk.symbols = Ends(32, config.width, config.symbols)
        self.speak = Ends(config.width, config.symbols)
        self._tied_weights_keys: dict[str, str] = {}
