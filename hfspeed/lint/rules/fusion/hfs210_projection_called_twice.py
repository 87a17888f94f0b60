"""A projection is called more than once in one forward."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionCalledTwice(FusionBlocker):
    """A stacked product gives every part once. A second call with another input has nowhere to come from."""

    code = "HFS210"
    since = "0.1"
    reasons = (Reason.CALLED_TWICE,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call it once and keep the result"

    bad = Example("""
        gate = self.act(self.gate(x))
        return self.down(gate * self.up(x)) + self.gate(residual)  # HFS210
    """)
    good = Example("""
        gate = self.act(self.gate(x))
        return self.down(gate * self.up(x)) + self.skip(residual)
    """)
