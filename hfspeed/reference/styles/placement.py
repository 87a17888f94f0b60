"""Where the pieces of one parameter lie: whole on every rank, or cut along one dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hfspeed.reference.styles.collectives import share


@dataclass(frozen=True)
class Placement:
    """A parameter cut along ``dim`` into ``blocks`` equal blocks, each of which is shared out over all ranks."""

    dim: int
    blocks: int = 1

    def local(self, whole: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
        """What one rank holds.

        Raises:
            ValueError: the parameter does not consist of so many equal blocks.
        """
        size = whole.shape[self.dim]
        if size % self.blocks:
            raise ValueError(f"{size} rows cannot be cut into {self.blocks} equal blocks")
        start, stop = share(size // self.blocks, rank, ranks)
        blocks = whole.chunk(self.blocks, self.dim)
        return torch.cat([block.narrow(self.dim, start, stop - start) for block in blocks], self.dim)

    def whole(self, pieces: Sequence[torch.Tensor]) -> torch.Tensor:
        """The parameter again, of all ranks' pieces."""
        blocks = [piece.chunk(self.blocks, self.dim) if piece.shape[self.dim] else () for piece in pieces]
        return torch.cat([own[number] for number in range(self.blocks) for own in blocks if own], self.dim)
