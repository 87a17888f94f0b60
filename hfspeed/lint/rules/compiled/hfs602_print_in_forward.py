"""A forward prints."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.compiled import runs, served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.nodes import walk
from hfspeed.lint.rewrite import replaced
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Place

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
        for block in _blocks(facts.tree):
            for statement in block:
                if not isinstance(statement, ast.Expr) or statement.value is not node:
                    continue
                place = facts.span(statement)
                last_line = place.end_line or place.line
                before = facts.lines[place.line - 1][: place.column - 1].strip()
                rest = facts.lines[last_line - 1][(place.end_column or 1) - 1 :].strip()
                if len(block) == 1:
                    yield replaced(facts, statement, "pass")
                elif not before and (not rest or rest.startswith("#")):
                    yield Edit(Place(place.file, place.line, 1, last_line + 1, 1), "")


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block
