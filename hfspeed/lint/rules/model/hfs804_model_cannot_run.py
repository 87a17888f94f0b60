"""The model did not load, or its forward raised."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class ModelCannotRun(FusionBlocker):
    """hfspeed builds the model without weights and runs it once. What stops it here would stop it when it is
    served.
    """

    code = "HFS804"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.CANNOT_RUN,)
    cost = "the model cannot be served"
    help = "make the forward run with input_ids and position_ids alone"

    bad = Example("""
        def forward(self, input_ids, prompt_lengths):  # HFS804
            ...
    """)
    good = Example("""
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **kwargs):
            ...
    """)
