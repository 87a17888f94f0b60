"""A projection is handed to a function that calls it."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionCalledThroughHelper(FusionBlocker):
    """The call then stands in the function, where every projection looks the same and none can be replaced by
    its own text.
    """

    code = "HFS209"
    since = "0.1"
    reasons = (Reason.CALLED_THROUGH_HELPER,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call the projection in the forward and hand on its result"

    bad = Example("""
        query = self._project(self.q_proj, x)  # HFS209
        key = self._project(self.k_proj, x)
        value = self._project(self.v_proj, x)
    """)
    good = Example("""
        query = self._to_heads(self.q_proj(x))
        key = self._to_heads(self.k_proj(x))
        value = self._to_heads(self.v_proj(x))
    """)
