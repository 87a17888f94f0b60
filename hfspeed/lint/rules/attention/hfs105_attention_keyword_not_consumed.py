"""A keyword given to the attention interface would be dropped."""

from hfspeed.example import Example
from hfspeed.lint.finding import Severity
from hfspeed.lint.rule import FusionBlocker
from hfspeed.refusal import Reason


class AttentionKeywordNotConsumed(FusionBlocker):
    """Every keyword that a model gives its attention changes the result. One that no kernel takes cannot be
    left out, because the answer would be fluent and wrong.
    """

    code = "HFS105"
    since = "0.1"
    severity = Severity.ERROR
    reasons = (Reason.KEYWORD_NOT_CONSUMED,)
    cost = "`{module}` cannot be served"
    help = "apply it to query, key or value before the call, or to the output after it"

    bad = Example("""
        attn_output, _ = attention_interface(
            self, query, key, value, attention_mask, scaling=self.scaling, temperature=self.temperature  # HFS105
        )
    """)
    good = Example("""
        attn_output, _ = attention_interface(
            self, query * self.temperature, key, value, attention_mask, scaling=self.scaling
        )
    """)
