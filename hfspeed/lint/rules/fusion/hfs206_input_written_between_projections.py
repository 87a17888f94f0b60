"""A value changes between the projections that share it."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class InputWrittenBetweenProjections(FusionBlocker):
    """Stacked projections read their input once. If something writes that input, or a view of it, between the
    first projection and the last, the later ones would read a value they should not.
    """

    code = "HFS206"
    since = "0.1"
    reasons = (Reason.INPUT_WRITTEN,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "write to the value after the last projection"

    bad = Example("""
        q = self.q_proj(x)
        x.mul_(self.scale)  # HFS206
        k = self.k_proj(x)
        v = self.v_proj(x)
    """)
    good = Example("""
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        x.mul_(self.scale)
    """)
