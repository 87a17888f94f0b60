"""Where each checkpoint tensor goes: parameter, part of it, or a tie."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Weight:
    """One tensor of the author's state dict and its destination.

    Attributes:
        source: name in the author's state dict, e.g. ``model.layers.0.self_attn.q_proj.weight``.
        target: parameter of the built model, e.g. ``model.layers.0.self_attn.qkv_proj.weight``.
        part: ``None`` for the whole parameter, else the index of the part it fills, in the op's order.
        transposed: the author keeps this matrix as ``[inputs, outputs]``.
        shared: the first name of this tensor, where the author's model has it under several and each has a place of
            its own here; checkpoints may hold it under that one alone.
    """

    source: str
    target: str
    part: int | None = None
    transposed: bool = False
    shared: str = ""


@dataclass(frozen=True)
class Tie:
    """Two names of one tensor: ``source`` is whatever ``target`` is."""

    source: str
    target: str
