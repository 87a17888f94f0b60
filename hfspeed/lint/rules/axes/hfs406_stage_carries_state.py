"""More than one value goes from layer to layer."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class StageCarriesState(FusionBlocker):
    """Between two stages one value travels. Another one that layers hand to each other, such as keys of an
    earlier layer or a running residual, would be missing on the next stage.
    """

    code = "HFS406"
    since = "0.1"
    reasons = (Reason.STAGE_STATE,)
    cost = "the model cannot be cut into stages"
    help = "carry one value through the loop, and read the rest from the layer itself"

    bad = Example("""
        for layer in self.layers:
            hidden_states, residual = layer(hidden_states, residual)  # HFS406
    """)
    good = Example("""
        for layer in self.layers:
            hidden_states = layer(hidden_states)
    """)
