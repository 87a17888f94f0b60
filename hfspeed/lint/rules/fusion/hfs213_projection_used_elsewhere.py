"""A projection, or what it gives, is wanted outside its group."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionUsedElsewhere(FusionBlocker):
    """Once projections are stacked, the child of that name is gone and the value between two fused steps is
    never made. Whatever else reads them would find nothing.
    """

    code = "HFS213"
    since = "0.1"
    reasons = (Reason.USED_ELSEWHERE,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "read the value where it is computed, and leave the weight of the child alone"

    bad = Example("""
        gate = self.gate(x)
        self.last_gate = gate.detach()  # HFS213
        return self.down(self.act(gate) * self.up(x))
    """)
    good = Example("""
        return self.down(self.act(self.gate(x)) * self.up(x))
    """)
