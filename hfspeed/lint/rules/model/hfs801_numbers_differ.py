"""What hfspeed made of the model computed other numbers."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class NumbersDiffer(FusionBlocker):
    """Every decision is run against the author's own forward before it is used. Here the two did not agree, so
    it is not used.
    """

    code = "HFS801"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.NUMBERS_DIFFER,)
    cost = "`{module}` is not served this way"
    help = "run hfspeed verify and report the model; the fault may be hfspeed's"

    bad = Example("""
        return self.down(self.act(self.gate(x)) * self.up(x)) + torch.rand_like(x)  # HFS801
    """)
    good = Example("""
        return self.down(self.act(self.gate(x)) * self.up(x))
    """)
