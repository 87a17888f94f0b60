"""What was run to prove a decision, and how far apart the two sides were."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Proof:
    """One numerical proof.

    Attributes:
        claim: what is proven, e.g. ``"heads at model.layers.*.self_attn.qkv_proj"``.
        method: what was run, e.g. ``"author's forward against emitted, float64, 2 ranks"``.
        error: the largest absolute difference, relative to the largest magnitude of the author's result.
        bound: the difference that would have refused it.
    """

    claim: str
    method: str
    error: float
    bound: float
