"""A projection is not called as `self.name(x)`."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionNotPlainCall(FusionBlocker):
    """The text of a call is what gets replaced. A call with further arguments, through another name for self,
    in a comprehension or inside a lambda has no text that stands for one product of one value.
    """

    code = "HFS211"
    since = "0.1"
    reasons = (Reason.NOT_A_PLAIN_CALL,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call it as self.name(x)"

    bad = Example("""
        query, key, value = (project(x) for project in (self.q_proj, self.k_proj, self.v_proj))  # HFS211
    """)
    good = Example("""
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x)
    """)
