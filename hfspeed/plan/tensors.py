"""What is known of a model's tensors: shapes, and what each takes in memory or on disk. No values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BITS: Mapping[str, int] = {
    "float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3": 8, "float8_e5m2": 8, "float8_e8m0": 8,
    "float6_e2m3": 6, "float6_e3m2": 6, "float4": 4, "int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint64": 64,
    "uint32": 32, "uint16": 16, "uint8": 8, "bool": 8, "complex64": 64,
}  # fmt: skip
"""Bits of one element, by dtype."""
FLOATS = ("float64", "float32", "float16", "bfloat16")
"""Dtypes that a model can be served in; parameters stored in one of them are loaded as the one that is served."""

Over = Literal["nothing", "outputs", "inputs", "both"]


@dataclass(frozen=True)
class Piece:
    """One array of those that a tensor is kept in; quantised ones are kept in several.

    ``over`` says along which sides of a matrix it extends, and so with which of them it is split: a scale for each
    output extends over outputs, a single number over nothing.
    """

    dtype: str
    bytes: int
    over: Over = "both"


@dataclass(frozen=True)
class Tensor:
    """One tensor of the author's state dict: its whole shape, and what it is kept in."""

    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def quantised(self) -> bool:
        """Whether it is kept in another form than as so many numbers."""
        return len(self.pieces) > 1 or any(BITS[piece.dtype] < 16 or "int" in piece.dtype for piece in self.pieces)


@dataclass(frozen=True)
class Sources:
    """What arithmetic needs to know beside the plan.

    Attributes:
        tensors: the author's state dict by name; a tied tensor may stand under one of its names only.
        dtype: what is served, so the dtype of activations and of the cache.
        exact: kinds of recurrences whose state is kept in float32 at least.
        group: with quantised weights, how many inputs and outputs share a scale; a share must hold whole groups.
        disk: bytes of the checkpoint, 0 where there is none.
        lost: tensors on disk that nothing in the model is made of.
    """

    tensors: Mapping[str, Tensor]
    dtype: str
    exact: frozenset[str] = field(default_factory=frozenset)
    group: tuple[int, int] = (1, 1)
    disk: int = 0
    lost: int = 0


def plain(shape: tuple[int, ...], dtype: str) -> Tensor:
    """A tensor kept as so many numbers of ``dtype``."""
    return Tensor(shape, (Piece(dtype, math.prod(shape) * BITS[dtype] // 8, extent(shape)),))


def extent(shape: tuple[int, ...]) -> Over:
    """Along which sides an array of this shape extends, as arrays of ``[outputs, inputs]`` usually do."""
    if math.prod(shape) == 1:
        return "nothing"
    return "both" if len(shape) > 1 and shape[-1] > 1 else "outputs"
