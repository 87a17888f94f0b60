"""The forward is written in a way that cannot be rewritten."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class UnsupportedSyntax(FusionBlocker):
    """Some syntax cannot be carried into a subclass without changing what it means: a lambda as forward, a
    generator, or names with two leading underscores, which Python binds to their class.
    """

    code = "HFS203"
    since = "0.1"
    reasons = (Reason.UNSUPPORTED_SYNTAX,)
    cost = "`{module}` stays as it is"
    help = "write the forward as a plain def with plain names"

    bad = Example("""
        class Block(nn.Module):
            forward = lambda self, x: self.down(self.act(self.gate(x)) * self.up(x))  # HFS203
    """)
    good = Example("""
        class Block(nn.Module):
            def forward(self, x):
                return self.down(self.act(self.gate(x)) * self.up(x))
    """)
