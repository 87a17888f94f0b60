"""The activation of a gated product has no kernel."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class NoGatedKernel(FusionBlocker):
    """An activation and the product after it are one kernel only for silu, gelu and its tanh form."""

    code = "HFS215"
    since = "0.1"
    severity = Severity.INFO
    reasons = (Reason.NO_GATED_KERNEL,)
    cost = "gate and up become one GEMM in `{module}`, but the product stays a kernel of its own"
    help = "use silu or gelu, if the model is still to be trained"

    bad = Example("""
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))  # HFS215
    """)
    good = Example("""
        return self.down(F.silu(self.gate(x)) * self.up(x))
    """)
