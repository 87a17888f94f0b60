"""A class is hinted that nothing in its file uses."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.lines import undecorated, without
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

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Take the hint away, and the import of its name where nothing else needs it."""
        assert isinstance(node, ast.Call)
        edit = undecorated(facts, node)
        if edit is not None:
            yield edit
            for statement in facts.tree.body:
                if isinstance(statement, ast.ImportFrom) and _only_for(facts, statement, node):
                    gone = without(facts, statement)
                    yield from () if gone is None else (gone,)


def _only_for(facts: Facts, statement: ast.ImportFrom, call: ast.Call) -> bool:
    """Whether ``statement`` imports the one name that ``call`` calls and nothing else reads."""
    if not isinstance(call.func, ast.Name) or [one.asname or one.name for one in statement.names] != [call.func.id]:
        return False
    return not any(_names(node, call.func.id) for node in walk(facts.tree) if node is not call.func)


def _names(node: ast.AST, name: str) -> bool:
    """Whether ``node`` means ``name``: a name, an attribute, or a string such as those in ``__all__``."""
    if isinstance(node, ast.Constant):
        return node.value == name
    return (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
