"""A model split by a plan of transformers' parallel styles, on simulated ranks: as its author would train it."""

from hfspeed.reference.styles.apply import STYLES, Styled, StyleError, split
from hfspeed.reference.styles.placement import Placement
from hfspeed.reference.styles.stages import staged

__all__ = ["STYLES", "Placement", "StyleError", "Styled", "split", "staged"]
