"""The model says that attention can be exchanged, and computes it by hand."""

import ast
import re
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts, dispatches
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hops import parts
from hfspeed.lint.lines import without
from hfspeed.lint.rule import Rule
from hfspeed.lint.softmax import attention_in

FLAG = "_supports_attention_backend"
BUILDS_ON = re.compile(r"^from (transformers\.models|\.\.\w+)\.\S*modeling_", re.MULTILINE)
"""Another model, whose attention is not seen here."""


class BackendFlagUntrue(Rule):
    """vLLM believes the flag, gives every call the new tokens alone, and keeps keys and values where this attention
    never looks: the first words are right, and then each step sees only itself.
    """

    code = "HFS108"
    since = "0.1"
    severity = Severity.ERROR
    served = (Severity.WARNING, "vLLM without hfspeed serves the model, and what it says is nonsense")
    message = "`{cls}` sets `_supports_attention_backend`, and nothing in this file asks the interface"
    cost = "vLLM serves the model, and what it says is nonsense"
    help = "call the function that ALL_ATTENTION_FUNCTIONS.get_interface gives, or take the flag away"

    bad = Example("""
        class SmallForCausalLM(PreTrainedModel):
            _supports_attention_backend = True  # HFS108

            def forward(self, x):
                q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
                return torch.softmax(q @ k.mT, dim=-1) @ v  # hfspeed: ignore[HFS101]
    """)
    good = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x):
                q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
                return torch.softmax(q @ k.mT, dim=-1) @ v  # hfspeed: ignore[HFS101]
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at the flag where some part of a causal language model has attention by hand, and none the interface."""
        flagged = [
            (cls, value)
            for cls in facts.classes.values()
            for value in cls.assigned.get(FLAG, [])
            if isinstance(value, ast.Constant) and value.value is True
        ]
        if not flagged or not facts.causal or dispatches(facts.tree) or BUILDS_ON.search(facts.text):
            return
        functions = [function for cls in parts(facts) for function in facts.reached(cls)]
        if any(attention_in(function) is not None for function in functions):
            for cls, value in flagged:
                statement = next(one for one in cls.node.body if getattr(one, "value", None) is value)
                yield self.at(facts, statement, cls=cls.name)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Take the flag away: vLLM refuses the model then, which is better than nonsense."""
        edit = without(facts, node) if isinstance(node, ast.stmt) else None
        yield from () if edit is None else (edit,)
