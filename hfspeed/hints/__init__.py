"""What the author says: decorators that store one record and change nothing else. Standard library only."""

from hfspeed.hints.attention import attention
from hfspeed.hints.decoder_layers import decoder_layers
from hfspeed.hints.experts import experts
from hfspeed.hints.gated_mlp import gated_mlp
from hfspeed.hints.hint import ATTRIBUTE, Hint, read
from hfspeed.hints.norm import norm
from hfspeed.hints.recurrence import recurrence

__all__ = ["ATTRIBUTE", "Hint", "attention", "decoder_layers", "experts", "gated_mlp", "norm", "read", "recurrence"]
