"""A projection is not called as `self.name(x)`."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.linears import linears
from hfspeed.lint.nodes import calls_in
from hfspeed.lint.rewrite import source
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Place, Reason


class ProjectionNotPlainCall(Rule):
    """The text of a call is what gets replaced. A call by keyword, with further arguments, through another name for
    self, in a comprehension or inside a lambda has no text that stands for one product of one value.
    """

    code = "HFS211"
    since = "0.1"
    reasons = (Reason.NOT_A_PLAIN_CALL,)
    message = "`{child}` is called by keyword"
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call it as self.name(x)"

    bad = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)

            def forward(self, x):
                return self.q_proj(input=x)  # HFS211
    """)
    good = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)

            def forward(self, x):
                return self.q_proj(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in every forward for a call of a linear by the keyword ``input`` alone."""
        told = set()
        for cls in facts.classes.values():
            made = linears(facts, cls)
            for call in (call for function in facts.reached(cls) for call in calls_in(function)):
                by_keyword = not call.args and [one.arg for one in call.keywords] == ["input"]
                child = on_self(call.func)
                if by_keyword and child in made and call not in told:
                    told.add(call)
                    yield self.at(facts, call, child=child or "", module=cls.name)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Leave the keyword's name out."""
        assert isinstance(node, ast.Call)
        (keyword,) = node.keywords
        start, value = facts.span(keyword), facts.span(keyword.value)
        written = source(facts, keyword)
        if written.startswith("input") and "#" not in written:
            named = len(written) - len(written[len("input") :].lstrip().removeprefix("=").lstrip())
            place = Place(start.file, start.line, start.column, start.line, start.column + named)
            if value.line == start.line:
                yield Edit(place, "")
