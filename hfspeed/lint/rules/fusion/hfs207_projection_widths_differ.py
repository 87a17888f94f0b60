"""Two projections that meet have different widths."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionWidthsDiffer(FusionBlocker):
    """The two halves of a gated product are cut from one matrix product and must be equally wide, or they
    would have been broadcast.
    """

    code = "HFS207"
    since = "0.1"
    reasons = (Reason.WIDTHS_DIFFER,)
    cost = "gate and up stay two GEMMs in `{module}`"
    help = "give both projections the same number of outputs"

    bad = Example("""
        self.gate = nn.Linear(size, 1)  # HFS207
        self.up = nn.Linear(size, inner)
    """)
    good = Example("""
        self.gate = nn.Linear(size, inner)
        self.up = nn.Linear(size, inner)
    """)
