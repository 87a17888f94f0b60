"""What was decided, as data: ops, weights, stages, proofs. No torch in here."""

from hfspeed.plan.ops import (
    OPS,
    Activation,
    Attention,
    Column,
    Embed,
    ExpertAct,
    Experts,
    Gated,
    Head,
    Heads,
    Keep,
    Local,
    Norm,
    NormWeight,
    Op,
    Row,
    Stacked,
    Whole,
)
from hfspeed.plan.plan import Forward, Plan, Stages, Wrapper
from hfspeed.plan.proof import Proof
from hfspeed.plan.weights import Tie, Weight

__all__ = [
    "OPS",
    "Activation",
    "Attention",
    "Column",
    "Embed",
    "ExpertAct",
    "Experts",
    "Forward",
    "Gated",
    "Head",
    "Heads",
    "Keep",
    "Local",
    "Norm",
    "NormWeight",
    "Op",
    "Plan",
    "Proof",
    "Row",
    "Stacked",
    "Stages",
    "Tie",
    "Weight",
    "Whole",
    "Wrapper",
]
