"""The fusions, in priority order. The order matters: an earlier one takes what a later one would also match."""

from hfspeed.fusions.attention import InterfaceAttention
from hfspeed.fusions.bare import BareMatrix
from hfspeed.fusions.experts import ChosenExperts
from hfspeed.fusions.gated import GatedLinear
from hfspeed.fusions.heads import HeadProjections
from hfspeed.fusions.packed_gated import PackedGatedLinear
from hfspeed.fusions.packed_heads import PackedHeads
from hfspeed.fusions.positions import PositionTable
from hfspeed.fusions.rms_norm import RootMeanSquareNorm
from hfspeed.fusions.rotary import RotaryEmbedding
from hfspeed.fusions.siblings import SiblingLinears
from hfspeed.pattern.fusion import Fusion
from hfspeed.pattern.replacement import Replacement

FUSIONS: tuple[Fusion, ...] = (
    PackedHeads(),  # no rival: one linear that serves three roles
    HeadProjections(),  # first: three siblings that meet in attention are also split by head
    GatedLinear(),  # before siblings: it saves the product's round trip as well
    PackedGatedLinear(),  # no rival: one linear that others cannot match
    SiblingLinears(),  # last of the linears: whatever still reads one value
    RotaryEmbedding(),  # no rival: a call that has no linear in it
    BareMatrix(),  # no rival: a matrix that is no child
)
REPLACEMENTS: tuple[Replacement, ...] = (
    InterfaceAttention(),  # first: without it the model cannot be served
    RootMeanSquareNorm(),
    ChosenExperts(),
    PositionTable(),
)
"""Fusions of whole modules; no two can see the same module, so their order is only a habit."""

__all__ = ["FUSIONS", "REPLACEMENTS"]
