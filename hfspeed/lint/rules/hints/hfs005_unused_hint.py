"""A class is hinted that nothing in its file uses."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule
from hfspeed.lint.said import hints_in


class UnusedHint(Rule):
    """A hint says something of the instances of its class. Where the file of a causal language model neither makes one
    nor derives from the class, it says nothing of that model.
    """

    code = "HFS005"
    since = "0.1"
    message = "nothing here uses `{cls}`, so its @{kind} says nothing of the model"
    cost = "the hint is not followed"
    help = "hint the class that is used, or take the hint away"

    bad = Example("""
        from hfspeed import norm

        @norm(eps="eps")  # HFS005
        class OldNorm(nn.Module):
            def __init__(self, eps):
                super().__init__()
                self.eps = eps

        class SmallForCausalLM(PreTrainedModel):
            pass
    """)
    good = Example("""
        class OldNorm(nn.Module):
            def __init__(self, eps):
                super().__init__()
                self.eps = eps

        class SmallForCausalLM(PreTrainedModel):
            pass
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for the name of every hinted class, outside of the class, in files of a causal language model."""
        for cls, kind, call in hints_in(facts):
            if not facts.causal or cls in facts.causal:
                continue
            own = set(map(id, walk(cls.node)))
            if not any(_names(node, cls.name) for node in walk(facts.tree) if id(node) not in own):
                yield self.at(facts, call, cls=cls.name, kind=kind)


def _names(node: ast.AST, name: str) -> bool:
    """Whether ``node`` means ``name``: a name, an attribute, or a string such as those in ``__all__``."""
    if isinstance(node, ast.Constant):
        return node.value == name
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
