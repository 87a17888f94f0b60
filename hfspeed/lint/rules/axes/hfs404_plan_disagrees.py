"""The model's own parallel plan says something else than its code."""

from hfspeed.example import Example
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class PlanDisagrees(FusionBlocker):
    """A plan written by hand drifts when the code changes. A projection marked to be split that is not read as
    split gives wrong numbers without an error.
    """

    code = "HFS404"
    since = "0.1"
    reasons = (Reason.PLAN_DISAGREES,)
    cost = "the model's own plan is not followed"
    help = "take the entry out, or make it say what the forward does"

    bad = Example("""
        base_model_tp_plan = {"layers.*.mlp.gate_up_proj": "rowwise"}  # HFS404
    """)
    good = Example("""
        base_model_tp_plan = {"layers.*.mlp.gate_up_proj": "colwise"}
    """)
