"""A module computes attention itself instead of asking the attention interface."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts
from hfspeed.lint.facts import Facts, dispatches
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.hops import parts
from hfspeed.lint.interface import through_interface
from hfspeed.lint.nodes import calls_in
from hfspeed.lint.rule import Rule
from hfspeed.lint.softmax import attention_in
from hfspeed.refusal import Reason


class AttentionByHand(Rule):
    """A server keeps keys and values of many sequences in pages that it manages. Attention that is written out, or
    that calls a kernel by name, sees only the tokens it is given, so it has to be exchanged. hfspeed does that where
    it can measure what the code computes and prove the exchange, which only a deep check tells; vLLM does not.
    """

    code = "HFS101"
    since = "0.1"
    reasons = (Reason.NO_INTERFACE,)
    served = (Severity.INFO, "vLLM without hfspeed refuses the model; hfspeed attends through the interface instead")
    message = "`{module}` computes attention by hand, with `{call}`"
    cost = "vLLM without hfspeed refuses the model; whether hfspeed can serve it is told by planning it"
    help = "call the function that ALL_ATTENTION_FUNCTIONS.get_interface gives"

    bad = Example("""
        from transformers.modeling_utils import PreTrainedModel

        class Attention(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.config = config
                self.scaling = config.head_dim**-0.5

            def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
                q, k, v = self.heads(x)
                scores = torch.matmul(q, k.transpose(-1, -2)) * self.scaling
                if attention_mask is not None:
                    scores = scores + attention_mask
                weights = torch.softmax(scores, dim=-1)  # HFS101
                return self.merged(torch.matmul(weights, v))
    """)
    good = Example("""
        from transformers.modeling_utils import PreTrainedModel
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        class Attention(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.config = config
                self.scaling = config.head_dim**-0.5

            def forward(self, x, attention_mask=None, past_key_values=None, **kwargs):
                q, k, v = self.heads(x)
                attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
                    self.config._attn_implementation, type(self).eager_attention
                )
                attended, _ = attention_interface(
                    self, q, k, v, attention_mask, scaling=self.scaling, **kwargs
                )
                return self.merged(attended.transpose(1, 2))

            def eager_attention(self, q, k, v, attention_mask=None, **kwargs):
                scores = torch.matmul(q, k.transpose(-1, -2)) * self.scaling
                if attention_mask is not None:
                    scores = scores + attention_mask
                weights = torch.softmax(scores, dim=-1)
                return torch.matmul(weights, v).transpose(1, 2), weights
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in every class that has a forward and is part of a causal language model."""
        told, reachable = set(), parts(facts)
        for cls in facts.classes.values():
            if cls not in reachable and not facts.decodes(cls):
                continue
            functions = facts.reached(cls)
            if any(dispatches(function) for function in functions):
                continue
            for node in _blamed(facts, cls, functions):
                if node not in told:
                    told.add(node)
                    yield self.at(facts, node, module=cls.name, call=ast.unparse(node.func))
                    break

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Ask the interface, and keep what is written as what runs by default."""
        if isinstance(node, ast.Call):
            yield from through_interface(facts, node)


def _blamed(facts: Facts, cls: ClassFacts, functions: list[ast.FunctionDef]) -> Iterator[ast.Call]:
    """The softmax in a method of ``cls``, or the call in it of a function that has one."""
    for function in functions:
        if function not in cls.methods.values():
            continue
        found = attention_in(function)
        if found is not None:
            yield found
            continue
        for call in calls_in(function):
            helper = facts.called(cls, call)
            if helper is not None and helper not in cls.methods.values() and attention_in(helper) is not None:
                yield call
