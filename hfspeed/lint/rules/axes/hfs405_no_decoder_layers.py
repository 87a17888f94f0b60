"""The loop over the decoder's layers was not found."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class NoDecoderLayers(FusionBlocker):
    """Stages are cut between the layers. For that, one list of layers has to be run in order, each reading
    what the one before it gave.
    """

    code = "HFS405"
    since = "0.1"
    reasons = (Reason.NO_DECODER_LAYERS,)
    cost = "the model cannot be cut into stages"
    help = 'run the layers in one for loop over one ModuleList, or say @decoder_layers("layers")'

    bad = Example("""
        hidden_states = self.first(hidden_states)
        hidden_states = self.second(hidden_states)  # HFS405
    """)
    good = Example("""
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=attention_mask, **kwargs)
    """)
