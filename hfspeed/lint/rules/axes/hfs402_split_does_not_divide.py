"""A size does not divide evenly among ranks."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class SplitDoesNotDivide(FusionBlocker):
    """Ranks get equal shares, and a share is made of whole heads or whole blocks."""

    code = "HFS402"
    since = "0.1"
    reasons = (Reason.DOES_NOT_DIVIDE,)
    cost = "`{module}` runs whole on every rank, or cannot run on that many"
    help = "choose a number of heads that common numbers of ranks divide"

    bad = Example("""
        self.q_proj = nn.Linear(size, 15 * head_dim)  # HFS402
    """)
    good = Example("""
        self.q_proj = nn.Linear(size, 16 * head_dim)
    """)
