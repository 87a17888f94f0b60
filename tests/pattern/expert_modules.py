"""Modules of experts, spelled in many ways; written for the tests."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Packed(nn.Module):
    """Gate and up in one tensor, a loop over the experts that were chosen, and whatever a subclass changes."""

    def __init__(self, count: int = 4, inputs: int = 16, inner: int = 12) -> None:
        super().__init__()
        self.count, self.width = count, inputs
        self.gate_up = nn.Parameter(torch.empty(count, 2 * inner, inputs))
        self.down = nn.Parameter(torch.empty(count, inputs, inner))

    def act(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x).view(-1, self.width)
        for number in ids.unique().tolist():
            if number == self.count:
                continue
            token, slot = torch.where(ids == number)
            each = F.linear(self.act(F.linear(x[token], self.gate_up[number])), self.down[number])
            y.index_add_(0, token, each * weights[token, slot, None])
        return y


class Clamped(Packed):
    limit = 1000.0

    def act(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return F.silu(gate.clamp(max=self.limit)) * up.clamp(-self.limit, self.limit)


class Swapped(Packed):
    def act(self, both: torch.Tensor) -> torch.Tensor:
        up, gate = both.chunk(2, -1)
        return F.gelu(gate, approximate="tanh") * up


class Woven(Packed):
    def act(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both[..., ::2].clamp(max=7.0), both[..., 1::2].clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)


class OneSided(Packed):
    """Only the gate is clamped, which no kernel does."""

    def act(self, both: torch.Tensor) -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return F.silu(gate.clamp(max=7.0)) * up


class Scaled(Packed):
    """A factor on what experts give: it is no weight of the router's, so a kernel would lose it."""

    def act(self, both: torch.Tensor) -> torch.Tensor:
        return super().act(both) * 2.5


class Shared(Packed):
    """Something is added for every token."""

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return super().forward(x, ids, weights) + x


class Renormalised(Packed):
    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return super().forward(x, ids, weights / weights.sum(-1, keepdim=True))


class FirstTwice(Packed):
    """The first expert is the second as well."""

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return super().forward(x, ids.masked_fill(ids == 1, 0), weights)


class Remembers(Packed):
    """A buffer, which the kernel would not have."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("offset", torch.ones(3))


class Apart(nn.Module):
    """Gate, up and down apart, with biases, as einsum over what was chosen; other names and another order."""

    def __init__(self, count: int = 4, inputs: int = 16, inner: int = 12) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.empty(count, inputs, inner))
        self.b = nn.Parameter(torch.empty(count, inputs, inner))
        self.c = nn.Parameter(torch.empty(count, inner, inputs))
        self.bias_b = nn.Parameter(torch.empty(count, inner))
        self.bias_a = nn.Parameter(torch.empty(count, inner))
        self.bias_c = nn.Parameter(torch.empty(count, inputs))

    def forward(self, chosen: torch.Tensor, share: torch.Tensor, *, tokens: torch.Tensor) -> torch.Tensor:
        up = torch.einsum("td,tkdf->tkf", tokens, self.a[chosen]) + self.bias_a[chosen]
        gate = torch.einsum("td,tkdf->tkf", tokens, self.b[chosen]) + self.bias_b[chosen]
        each = torch.einsum("tkf,tkfd->tkd", F.gelu(gate) * up, self.c[chosen]) + self.bias_c[chosen]
        return (each * share[..., None]).sum(1)


class WeighsInput(nn.Module):
    """No gate; weights multiply what goes in."""

    def __init__(self, count: int = 4, inputs: int = 16, inner: int = 12) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(count, inner, inputs))
        self.down = nn.Parameter(torch.empty(count, inputs, inner))

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        given = x[:, None] * weights[..., None]
        hidden = F.relu(torch.einsum("tkd,tkfd->tkf", given, self.up[ids])).square()
        return torch.einsum("tkf,tkdf->tkd", hidden, self.down[ids]).sum(1)


def on_meta(cls: type[nn.Module], *sizes: Any) -> nn.Module:
    with torch.device("meta"):
        return cls(*sizes)
