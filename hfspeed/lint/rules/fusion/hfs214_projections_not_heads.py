"""Query, key and value are not whole heads side by side."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionsNotHeads(FusionBlocker):
    """Heads are what ranks share out. Projections whose outputs are not equal heads in order cannot be cut
    between them.
    """

    code = "HFS214"
    since = "0.1"
    reasons = (Reason.NOT_HEADS,)
    cost = "`{module}` runs whole on every rank"
    help = "project to heads * head_dim outputs, one head after the other"

    bad = Example("""
        query = self.q_proj(x).view(batch, tokens, self.head_dim, self.heads).transpose(2, 3)  # HFS214
    """)
    good = Example("""
        query = self.q_proj(x).view(batch, tokens, self.heads, self.head_dim)
    """)
