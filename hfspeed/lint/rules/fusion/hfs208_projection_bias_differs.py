"""Only some of the projections in a group have a bias."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ProjectionBiasDiffers(FusionBlocker):
    """One matrix product has one bias. Where some parts have one and others have none, there is no layer that
    holds them.
    """

    code = "HFS208"
    since = "0.1"
    reasons = (Reason.BIAS_DIFFERS,)
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "give all of them a bias, or none"

    bad = Example("""
        self.gate = nn.Linear(size, inner, bias=True)
        self.up = nn.Linear(size, inner, bias=False)  # HFS208
    """)
    good = Example("""
        self.gate = nn.Linear(size, inner, bias=False)
        self.up = nn.Linear(size, inner, bias=False)
    """)
