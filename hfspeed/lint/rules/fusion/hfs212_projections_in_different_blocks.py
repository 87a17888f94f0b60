"""Projections of one group stand in branches that need not run together."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionsInDifferentBlocks(FusionBlocker):
    """One product computes all parts at once, so it has to stand where all of them are wanted. Branches that
    are not taken together have no such place.
    """

    code = "HFS212"
    since = "0.1"
    reasons = (Reason.DIFFERENT_BLOCKS,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call them side by side, before the branch"

    bad = Example("""
        query = self.q_proj(x)
        if cached is None:
            key = self.k_proj(x)  # HFS212
        else:
            key = cached
    """)
    good = Example("""
        query, key = self.q_proj(x), self.k_proj(x)
        if cached is not None:
            key = cached
    """)
