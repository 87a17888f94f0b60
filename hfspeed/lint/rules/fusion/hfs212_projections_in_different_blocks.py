"""Projections of one group stand in branches that need not run together."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionsInDifferentBlocks(FusionBlocker):
    """One product computes all parts at once, so it has to stand where at least one of them is wanted in every run.
    Branches alone have no such place, and a loop has another one in each turn.
    """

    code = "HFS212"
    since = "0.1"
    reasons = (Reason.DIFFERENT_BLOCKS,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call them side by side, before the branch"

    bad = Example("""
        if first:
            query = self.q_proj(x)
        if second:
            key = self.k_proj(x)  # HFS212
    """)
    good = Example("""
        query, key = self.q_proj(x), self.k_proj(x)
        if not second:
            key = cached
    """)
