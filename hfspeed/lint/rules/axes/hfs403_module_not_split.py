"""A module is not shared out among ranks."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ModuleNotSplit(FusionBlocker):
    """What is not proven to work on a share runs whole everywhere. That is correct, but it saves neither time
    nor memory.
    """

    code = "HFS403"
    since = "0.1"
    severity = Severity.INFO
    reasons = (Reason.NOT_SPLIT,)
    cost = "`{module}` runs whole on every rank"
    help = "write it as a projection out, steps that keep channels apart, and a projection back"

    bad = Example("""
        return self.mix(x) + self.bias_for(x)  # HFS403
    """)
    good = Example("""
        return self.down(self.act(self.up(x)))
    """)
