"""The attention interface is used, but the model does not say so."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts
from hfspeed.lint.facts import Facts, dispatches
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.hops import CROSS
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule

FLAG = "_supports_attention_backend"


class BackendFlagMissing(Rule):
    """vLLM asks the class, not the code, whether attention can be exchanged. Without the flag it refuses a model
    that would work.
    """

    code = "HFS102"
    since = "0.1"
    severity = Severity.ERROR
    message = "`{cls}` does not set `_supports_attention_backend`"
    cost = "vLLM refuses the model"
    help = "write _supports_attention_backend = True in `{cls}`"

    bad = Example("""
        class SmallAttention(nn.Module):
            def forward(self, x, attention_mask=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class SmallPreTrainedModel(PreTrainedModel):  # HFS102
            base_model_prefix = "model"

        class SmallForCausalLM(SmallPreTrainedModel):
            pass
    """)
    good = Example("""
        class SmallAttention(nn.Module):
            def forward(self, x, attention_mask=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class SmallPreTrainedModel(PreTrainedModel):
            base_model_prefix = "model"
            _supports_attention_backend = True

        class SmallForCausalLM(SmallPreTrainedModel):
            pass
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at what each causal language model derives from, in files whose attention is causal throughout."""
        if not _self_attention_only(facts):
            return
        told = set()
        for cls in facts.causal:
            lineage = facts.lineage(cls)
            root = next((one for one in reversed(lineage) if "PreTrainedModel" in one.bases), None)
            if root is None or any(FLAG in one.assigned for one in lineage) or root in told:
                continue
            told.add(root)
            yield self.at(facts, root.node, cls=root.name)


def _self_attention_only(facts: Facts) -> bool:
    """Whether some class asks the interface, and none of those that do attends to another sequence."""
    asking = [cls for cls in facts.classes.values() if any(dispatches(one) for one in facts.reached(cls))]
    return bool(asking) and not any(_attends_elsewhere(facts, cls) for cls in asking)


def _attends_elsewhere(facts: Facts, cls: ClassFacts) -> bool:
    forward = facts.method(cls, "forward")
    return forward is not None and any(isinstance(node, ast.arg) and node.arg in CROSS for node in walk(forward))
