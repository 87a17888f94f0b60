"""A forward prints."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.compiled import runs, served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.lines import without
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule

TALK = frozenset({"breakpoint", "print"})


class PrintInForward(Rule):
    """A compiled graph ends where Python has to print, and begins again behind it. A tensor that is printed is waited
    for, too.
    """

    code = "HFS602"
    since = "0.1"
    message = "`{call}` is called in `{module}.{function}`"
    cost = "`{module}` breaks the compiled graph"
    help = "take the call away"

    bad = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x):
                print(x.shape)  # HFS602
                return self.head(x)
    """)
    good = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x):
                return self.head(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for calls of ``print`` and ``breakpoint`` in all that is served."""
        for cls, function in served(facts):
            for node in runs(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TALK:
                    yield self.at(facts, node, call=node.func.id, module=cls.name, function=function.name)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Take the statement away where it is one of several and alone on its lines."""
        for statement in walk(facts.tree):
            if isinstance(statement, ast.Expr) and statement.value is node:
                edit = without(facts, statement)
                yield from () if edit is None else (edit,)
