"""Projections that look like one group read different values."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionInputsDiffer(FusionBlocker):
    """Projections become one matrix product only when they read the very same value."""

    code = "HFS205"
    since = "0.1"
    reasons = (Reason.INPUTS_DIFFER,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "give all of them the same value"

    bad = Example("""
        query = self.q_proj(hidden_states)
        key = self.k_proj(self.norm(hidden_states))  # HFS205
        value = self.v_proj(hidden_states)
    """)
    good = Example("""
        hidden_states = self.norm(hidden_states)
        query = self.q_proj(hidden_states)
        key = self.k_proj(hidden_states)
        value = self.v_proj(hidden_states)
    """)
