"""Attention gets a mask that is not the causal one."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class MaskNotCausal(FusionBlocker):
    """A server keeps many sequences side by side and builds its own masks from their lengths. It can only
    honour a mask that it knows: causal, or causal within a window.
    """

    code = "HFS106"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.MASK_NOT_CAUSAL,)
    cost = "`{module}` cannot be served"
    help = "pass the mask from create_causal_mask or create_sliding_window_causal_mask on as it is"

    bad = Example("""
        attn_output, _ = attention_interface(
            self, query, key, value, attention_mask + self.bias(positions), scaling=self.scaling  # HFS106
        )
    """)
    good = Example("""
        attn_output, _ = attention_interface(self, query, key, value, attention_mask, scaling=self.scaling)
    """)
