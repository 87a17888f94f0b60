"""The causal language model mixes tokens outside its decoder."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class WrapperNotRowwise(FusionBlocker):
    """A server asks for the logits of a few tokens out of many sequences. Everything around the decoder must
    therefore work on each token by itself.
    """

    code = "HFS802"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.WRAPPER_NOT_ROWWISE,)
    cost = "the model cannot be served"
    help = "move the step into the decoder, or make it work on each token by itself"

    bad = Example("""
        hidden_states = outputs.last_hidden_state
        logits = self.lm_head(hidden_states - hidden_states.mean(dim=1, keepdim=True))  # HFS802
    """)
    good = Example("""
        hidden_states = outputs.last_hidden_state
        logits = self.lm_head(hidden_states - hidden_states.mean(dim=-1, keepdim=True))
    """)
