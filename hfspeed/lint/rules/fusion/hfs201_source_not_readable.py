"""The forward has no source that can be read."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class SourceNotReadable(FusionBlocker):
    """hfspeed rewrites a forward from its text. One that was compiled, generated at run time or typed into a
    shell has none.
    """

    code = "HFS201"
    since = "0.1"
    reasons = (Reason.NO_SOURCE,)
    cost = "`{module}` stays as it is"
    help = "define the forward in a file, with def"

    bad = Example("""
        Block.forward = eval("lambda self, x: self.down(self.act(self.gate(x)) * self.up(x))")  # HFS201
    """)
    good = Example("""
        class Block(nn.Module):
            def forward(self, x):
                return self.down(self.act(self.gate(x)) * self.up(x))
    """)
