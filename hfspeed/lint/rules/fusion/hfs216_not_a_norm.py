"""A norm computes something else than the root-mean-square norm."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class NotANorm(FusionBlocker):
    """The fused kernel divides by the root of the mean square plus epsilon and multiplies by a weight. A
    module that was run with random numbers and gave anything else keeps its own code.
    """

    code = "HFS216"
    since = "0.1"
    severity = Severity.INFO
    reasons = (Reason.NOT_A_NORM,)
    cost = "`{module}` stays a chain of small kernels"
    help = "write x * rsqrt(mean(x * x) + eps) * weight, if that is what is meant"

    bad = Example("""
        class Norm(nn.Module):
            def forward(self, x):
                return self.weight * x / (x.norm(dim=-1, keepdim=True) + self.eps)  # HFS216
    """)
    good = Example("""
        class Norm(nn.Module):
            def forward(self, x):
                return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
    """)
