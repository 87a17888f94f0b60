"""Experts run as their author wrote them, in no kernel."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ExpertsAsWritten(FusionBlocker):
    """Experts are fused if a module takes tokens, chosen experts and their weights, and was shown by running it to
    compute a form that a kernel has. Anything else runs as it is written, which is right but slow.
    """

    code = "HFS302"
    since = "0.2"
    severity = Severity.INFO
    reasons = (Reason.EXPERTS_AS_WRITTEN,)
    cost = "the experts of `{module}` run one after another, outside of any graph, and every rank holds all of them"
    help = "give the experts a module of their own that takes tokens, chosen experts and weights"

    bad = Example("""
        class Block(nn.Module):
            def forward(self, x):
                weights, chosen = self.route(x)
                y = torch.zeros_like(x)
                for index in chosen.unique().tolist():  # HFS302
                    token, slot = torch.where(chosen == index)
                    y[token] += self.experts[index](x[token]) * weights[token, slot, None]
                return y
    """)
    good = Example("""
        class Block(nn.Module):
            def forward(self, x):
                weights, chosen = self.route(x)
                return self.experts(x, chosen, weights)
    """)
