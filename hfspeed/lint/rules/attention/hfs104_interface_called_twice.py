"""One attention module asks for attention more than once."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class InterfaceCalledTwice(FusionBlocker):
    """A module keeps one cache of keys and values. When it calls the attention interface twice, the second
    call would read what the first has written.
    """

    code = "HFS104"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.CALLED_TWICE_INTERFACE,)
    cost = "`{module}` cannot be served"
    help = "give each call to the attention interface a module of its own"

    bad = Example("""
        a, _ = attention_interface(self, q1, k1, v, attention_mask, scaling=self.scaling)
        b, _ = attention_interface(self, q2, k2, v, attention_mask, scaling=self.scaling)  # HFS104
        return self.o_proj(a - self.weight * b)
    """)
    good = Example("""
        a = self.first(q1, k1, v, attention_mask)
        b = self.second(q2, k2, v, attention_mask)
        return self.o_proj(a - self.weight * b)
    """)
