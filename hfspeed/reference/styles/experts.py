"""Styles of experts and of what chooses them: matrices cut by their inner width, or whole experts spread over ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hfspeed.reference.ranks import Group
from hfspeed.reference.styles.collectives import added, exchanged, gathered, handed, own, share
from hfspeed.reference.styles.placement import Placement
from hfspeed.reference.styles.rank import Rank, StyleError, replace_forward


@dataclass(frozen=True)
class CutExperts:
    """A module of experts that is called with tokens, experts and weights, and gives its part of a sum."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing: its parameters have entries of their own."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Add up what the ranks give, if they hold pieces at all."""
        forward = module.forward

        def experts(*args: Any, **kwargs: Any) -> Any:
            if not args:
                raise StyleError(f"`{path}` is called without positional arguments, which its style needs")
            tokens, *routing = args
            given = [handed(tokens, rank.group), *routing[:1]]
            given += [handed(weights, rank.group) for weights in routing[1:2]] + routing[2:]
            y = forward(*given, **kwargs)
            return added(y, rank.group) if y is not None and rank.cut_in(path) else y

        replace_forward(module, experts)


@dataclass(frozen=True)
class WholeExperts:
    """Single parameters only: each rank holds whole experts, and the module counts its own."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Cut the first dimension, which counts experts."""
        whole = module._parameters[name]
        assert whole is not None
        counts = hasattr(module, "num_experts")
        if counts and whole.shape[0] % rank.group.size:
            raise StyleError(f"`{path}.{name}`: {whole.shape[0]} experts do not divide by {rank.group.size} ranks")
        if counts:
            module.num_experts = whole.shape[0] // rank.group.size  # type: ignore[assignment]
        rank.shard(module, path, name, Placement(0))

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Nothing: whoever reads the parameter must take its piece."""


@dataclass(frozen=True)
class Shared:
    """A module without weights that every rank runs alike although a sum over ranks follows: each gives its part."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing is cut."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:  # noqa: ARG002  as every style
        """Divide what goes in by the number of ranks."""
        forward = module.forward
        replace_forward(module, lambda x, *args, **kwargs: forward(x / rank.group.size, *args, **kwargs))


@dataclass(frozen=True)
class Router:
    """What chooses experts returns logits, weights and numbers: each rank keeps its own experts', renumbered."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing is cut."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Zero the weights of others' experts, whose number becomes one past the own ones."""
        count = getattr(module, "num_experts", None)
        count = getattr(getattr(module, "config", None), "num_experts", None) if count is None else count
        if count is None or count % rank.group.size:
            told = "does not say how many experts there are" if count is None else f"chooses among {count} experts"
            raise StyleError(f"`{path}` {told}, as spreading them over {rank.group.size} ranks needs")
        here, forward = count // rank.group.size, module.forward

        def router(*args: Any, **kwargs: Any) -> Any:
            result = forward(*args, **kwargs)
            if not isinstance(result, tuple) or len(result) < 3:
                raise StyleError(f"`{path}` does not return logits, weights and numbers of experts")
            logits, weights, numbers, *rest = result
            others = numbers // here != rank.group.rank
            weights = handed(weights, rank.group).masked_fill(others, 0.0)
            return logits, weights, (numbers % here).masked_fill(others, here), *rest

        replace_forward(module, router)


@dataclass(frozen=True)
class SentTokens:
    """Every token goes to the ranks that hold its experts, and comes back: each rank sends a share of all tokens."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing: its parameters have entries of their own."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Send, compute with weight one, send back, weigh and add up."""
        forward, group = module.forward, rank.group

        def experts(hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> Any:
            here = getattr(module, "num_experts", None)
            if here is None:
                raise StyleError(f"`{path}` has no `num_experts`, which its style needs")
            tokens = own(hidden_states, group, 0)
            chosen = top_k_index[slice(*share(len(top_k_index), group.rank, group.size))]
            y = _sent(forward, tokens, chosen, own(top_k_weights, group, 0), int(here), group)
            return gathered(y.to(hidden_states.dtype), group, 0)

        replace_forward(module, experts)


def _sent(
    forward: Callable[..., Any], x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, here: int, group: Group
) -> torch.Tensor:
    """One rank's tokens through everybody's experts."""
    numbers = chosen.reshape(-1)
    order = torch.argsort(numbers, stable=True)
    owner = numbers[order] // here
    if numbers.numel() and int(owner.max()) >= group.size:
        raise StyleError(f"an expert is chosen that no rank has: {int(numbers.max())}, of {here * group.size}")
    sizes = [int((owner == other).sum()) for other in range(group.size)]
    came = exchanged(list(torch.split(x[order // chosen.shape[-1]], sizes)), group)
    theirs = torch.cat(group.all_to_all(list(torch.split(numbers[order], sizes)))) - here * group.rank
    made = _computed(forward, torch.cat(came), theirs)
    back = torch.cat(exchanged(list(torch.split(made, [piece.shape[0] for piece in came])), group))
    sorted_back = torch.empty_like(order)
    sorted_back[order] = torch.arange(len(order))
    return (back[sorted_back].view(*chosen.shape, back.shape[-1]) * weights[..., None]).sum(1)


def _computed(forward: Callable[..., Any], x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Each token through its one expert, with weight one; of no token something that still has gradients."""
    if not len(x):
        zero = torch.zeros(1, 1, dtype=torch.long)
        return forward(x.sum(0, keepdim=True), zero, torch.ones(1, 1, dtype=x.dtype))[:0]  # type: ignore[no-any-return]
    return forward(x, numbers[:, None], torch.ones(len(x), 1, dtype=x.dtype))  # type: ignore[no-any-return]
