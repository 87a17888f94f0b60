"""One rank of a split model: its own copy of the modules, which parameters are cut, and how it meets the others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hfspeed.reference.ranks import Group
from hfspeed.reference.styles.collectives import gathered
from hfspeed.reference.styles.placement import Placement


class StyleError(ValueError):
    """A plan that transformers would not apply, or that stops the forward."""


@dataclass
class Rank:
    """One rank.

    Attributes:
        root: its copy of the model.
        group: how it meets the other ranks.
        cut: the parameters of which it holds a piece, by full name.
        late: parameters whose gradients are added over the ranks once they are there.
        config: the text model's configuration.
    """

    root: nn.Module
    group: Group
    cut: dict[str, Placement] = field(default_factory=dict)
    late: list[str] = field(default_factory=list)
    config: Any = None

    def shard(self, module: nn.Module, path: str, name: str, placement: Placement) -> None:
        """Keep only this rank's piece of a parameter."""
        whole = module._parameters[name]
        assert whole is not None
        try:
            piece = placement.local(whole.detach(), self.group.rank, self.group.size)
        except (ValueError, IndexError, RuntimeError) as error:
            raise StyleError(f"`{path}.{name}` of shape {[*whole.shape]} cannot be cut: {error}") from error
        module._parameters[name] = nn.Parameter(piece.clone(), requires_grad=whole.requires_grad)
        self.cut[f"{path}.{name}" if path else name] = placement

    def cut_in(self, path: str) -> bool:
        """Whether this rank holds only a piece of some parameter at or below a module."""
        return any(name.startswith(f"{path}.") for name in self.cut)

    @contextmanager
    def put_together(self, module: nn.Module, path: str) -> Iterator[None]:
        """The module's own parameters whole for a while, for code that nobody knows how to split."""
        pieces = dict(module._parameters)
        try:
            for name, piece in pieces.items():
                if piece is not None and (at := self.cut.get(f"{path}.{name}")):
                    module._parameters[name] = gathered(piece, self.group, at.dim)  # type: ignore[assignment]
            yield
        finally:
            module._parameters.update(pieces)


def copied(model: nn.Module, *, train: bool) -> nn.Module:
    """A copy with parameters of its own that lie in the same memory; ``train``: they want gradients."""
    memo: dict[int, Any] = {
        id(one): nn.Parameter(one.detach(), requires_grad=train and one.is_floating_point())
        for one in model.parameters()
    }
    return copy.deepcopy(model, memo)


def replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Call ``forward`` instead of the module's own."""
    module.forward = forward


def first(args: tuple[Any, ...], path: str) -> torch.Tensor:
    """The first positional argument, which styles work on.

    Raises:
        StyleError: the module is called by keyword only.
    """
    if not args:
        raise StyleError(f"`{path}` is called without a positional argument, which its style needs")
    value: torch.Tensor = args[0]
    return value
