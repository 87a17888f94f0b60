"""Styles of linears, tables and single parameters: cut by outputs or by inputs, gathered or summed up behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hfspeed.reference.styles.collectives import added, gathered, handed, own
from hfspeed.reference.styles.placement import Placement
from hfspeed.reference.styles.rank import Rank, StyleError, first, replace_forward


@dataclass(frozen=True)
class Column:
    """Cut by outputs (``packed``: of two halves, each); ``gather``: every rank gets them all."""

    gather: bool = False
    packed: bool = False

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Cut one parameter: rows of a matrix, or of each matrix of a stack; columns of a table."""
        whole = module._parameters[name]
        assert whole is not None
        dim = 1 if isinstance(module, nn.Embedding) else max(whole.ndim - 2, 0)
        if self.gather and whole.shape[dim] % rank.group.size:
            raise StyleError(
                f"`{path}` gives {whole.shape[dim]} values, which do not divide by {rank.group.size} ranks, "
                "as gathering them needs"
            )
        rank.shard(module, path, name, Placement(dim, 2 if self.packed and whole.ndim > 1 else 1))

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Let the module compute its share of the outputs."""
        forward = module.forward
        known = self.packed or isinstance(module, nn.Linear | nn.Embedding)

        def column(*args: Any, **kwargs: Any) -> Any:
            x = first(args, path)
            if not known:
                with rank.put_together(module, path):
                    y = forward(x, *args[1:], **kwargs)
                return y if self.gather else own(y, rank.group)
            y = forward(handed(x, rank.group) if x.is_floating_point() else x, *args[1:], **kwargs)
            return gathered(y, rank.group) if self.gather else y

        replace_forward(module, column)


@dataclass(frozen=True)
class Row:
    """Cut by inputs, and outputs summed up; ``whole_input``: each rank takes its share of an input that all have."""

    whole_input: bool = False

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Cut one parameter by its last dimension, a table by its rows; a bias stays whole."""
        whole = module._parameters[name]
        assert whole is not None
        if isinstance(module, nn.Embedding):
            rank.shard(module, path, name, Placement(0))
        elif name != "bias":
            if isinstance(module, nn.Linear) and not self.whole_input and whole.shape[-1] % rank.group.size:
                raise StyleError(
                    f"`{path}` reads {whole.shape[-1]} values, which do not divide by {rank.group.size} ranks; "
                    "transformers takes every rank's share of an input to be as large as its own"
                )
            rank.shard(module, path, name, Placement(whole.ndim - 1))

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Let the module compute its part of the sum."""
        forward = module.forward

        def row(*args: Any, **kwargs: Any) -> Any:
            x = first(args, path)
            if not isinstance(module, nn.Linear):
                with rank.put_together(module, path):
                    return forward(x if self.whole_input else gathered(x, rank.group), *args[1:], **kwargs)
            bias, module._parameters["bias"] = module._parameters.get("bias"), None
            try:
                y = added(forward(own(x, rank.group) if self.whole_input else x, *args[1:], **kwargs), rank.group)
            finally:
                module._parameters["bias"] = bias
            return y if bias is None else y + bias

        replace_forward(module, row)


@dataclass(frozen=True)
class PackedRow:
    """Single parameters only: cut by the last dimension, each half of it by itself."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Cut one parameter; a vector stays whole."""
        whole = module._parameters[name]
        assert whole is not None
        if whole.ndim > 1:
            rank.shard(module, path, name, Placement(whole.ndim - 1, 2))

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Nothing: whoever reads the parameter must take its piece."""


@dataclass(frozen=True)
class Alike:
    """Whole on every rank, but each sees only its own share of the values: gradients are added."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing is cut."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Remember the module's own parameters."""
        rank.late += [f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)]


@dataclass(frozen=True)
class Latent:
    """A whole linear whose last outputs, as many as the configuration says, go past the next linear to all heads."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing is cut."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:
        """Add up the gradients of those outputs."""
        size = getattr(rank.config, "qk_rope_head_dim", None)
        if size is None:
            raise StyleError(f"`{path}`: its style needs `qk_rope_head_dim` in the configuration")
        forward = module.forward

        def latent(*args: Any, **kwargs: Any) -> Any:
            y = forward(*args, **kwargs)
            rest, turned = y.split([y.shape[-1] - size, size], -1)
            return torch.cat([rest, handed(turned, rank.group)], -1)

        replace_forward(module, latent)


@dataclass(frozen=True)
class Summed:
    """Outputs are parts of a sum over the ranks."""

    def shard(self, rank: Rank, module: nn.Module, path: str, name: str) -> None:
        """Nothing is cut."""

    def install(self, rank: Rank, module: nn.Module, path: str) -> None:  # noqa: ARG002  as every style
        """Add up what the module returns."""
        forward = module.forward

        def summed(*args: Any, **kwargs: Any) -> Any:
            y = forward(*args, **kwargs)
            return y if y is None else added(y, rank.group)

        replace_forward(module, summed)
