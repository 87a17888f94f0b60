"""What attention is told changes from call to call."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class AttentionValueVaries(FusionBlocker):
    """Scale, window and softcap are built into an attention layer once. A value that depends on the input, the
    length or the call would be frozen at whatever it was when it was looked at.
    """

    code = "HFS107"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.VALUE_VARIES,)
    cost = "`{module}` cannot be served"
    help = "compute the value in __init__, or scale the query instead"

    bad = Example("""
        scaling = math.log(query.shape[-2]) * self.scaling
        attn_output, _ = attention_interface(self, query, key, value, attention_mask, scaling=scaling)  # HFS107
    """)
    good = Example("""
        query = query * torch.log(position_ids + 1)[:, None, :, None]
        attn_output, _ = attention_interface(self, query, key, value, attention_mask, scaling=self.scaling)
    """)
