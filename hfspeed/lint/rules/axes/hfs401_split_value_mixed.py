"""A step mixes what would lie on different ranks."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class SplitValueMixed(FusionBlocker):
    """After a split projection every rank holds some of the channels. A step that reads across them needs all
    of them, so the value cannot stay split up to there.
    """

    code = "HFS401"
    since = "0.1"
    reasons = (Reason.MIXES_SPLIT,)
    cost = "`{module}` runs whole on every rank"
    help = "work head by head, or move the step before the split projection or behind the one that sums"

    bad = Example("""
        gate = torch.softmax(self.gate(x), dim=-1)  # HFS401
        return self.down(gate * self.up(x))
    """)
    good = Example("""
        gate = F.silu(self.gate(x))
        return self.down(gate * self.up(x))
    """)
