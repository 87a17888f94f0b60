"""The forward uses names from a function around it."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ForwardIsClosure(FusionBlocker):
    """A forward that was made inside another function carries values with it that no text can name. Written
    into a module of its own it would not find them.
    """

    code = "HFS202"
    since = "0.1"
    reasons = (Reason.CLOSURE,)
    cost = "`{module}` stays as it is"
    help = "keep the value on self, or move the class to the top of the file"

    bad = Example("""
        def block(limit):
            class Block(nn.Module):
                def forward(self, x):  # HFS202
                    return self.down(self.act(self.gate(x)).clamp(max=limit) * self.up(x))
            return Block
    """)
    good = Example("""
        class Block(nn.Module):
            def forward(self, x):
                return self.down(self.act(self.gate(x)).clamp(max=self.limit) * self.up(x))
    """)
