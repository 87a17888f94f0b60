"""Tokens mixed by hand, in no kernel's function."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class TokensMixedByHand(FusionBlocker):
    """A recurrence is served from a state per sequence if the function that computes it is that of a kernel library, by
    name and by what it computes. A module that mixes tokens in its own way is run on whole sequences at every step.
    """

    code = "HFS110"
    since = "0.2"
    severity = Severity.INFO
    reasons = (Reason.NO_KERNEL,)
    cost = "`{module}` runs on all tokens of every sequence at each step, and what it is given is kept for all of them"
    help = "call the function of a kernel library, by its name and with its arguments"

    bad = Example("""
        class Mixer(nn.Module):
            def forward(self, x):
                states = []
                for step in x.unbind(1):  # HFS110
                    self.step(states, step)
                return torch.stack(states, 1)
    """)
    good = Example("""
        class Mixer(nn.Module):
            def forward(self, x):
                q, k, v, g, beta = self.project(x)
                return chunk_gated_delta_rule(q, k, v, g=g, beta=beta)[0]
    """)
