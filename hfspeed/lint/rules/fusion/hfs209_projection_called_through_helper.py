"""A projection is called by a function that the forward calls."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.inline import arguments, inlined, returned
from hfspeed.lint.linears import linears
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import replaced
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Reason


class ProjectionCalledThroughHelper(Rule):
    """The call then stands in the function, where every projection looks the same and none can be replaced by
    its own text.
    """

    code = "HFS209"
    since = "0.1"
    reasons = (Reason.CALLED_THROUGH_HELPER,)
    message = "`{child}` is called by `{helper}`, not by the forward itself"
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "call the projection in the forward and hand on its result"

    bad = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)

            def forward(self, x):
                query = self._project(self.q_proj, x)  # HFS209
                key = self._project(self.k_proj, x)  # HFS209
                return query, key

            def _project(self, layer, x):
                return layer(x)
    """)
    good = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)

            def forward(self, x):
                query = self.q_proj(x)
                key = self.k_proj(x)
                return query, key

            def _project(self, layer, x):
                return layer(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in every forward for calls of one-line functions that call a linear, their own or one they are given."""
        for cls in facts.classes.values():
            forward, made = cls.methods.get("forward"), linears(facts, cls)
            for call in calls_in(forward) if forward is not None and made else ():
                helper = _helper(facts, cls, call)
                child = next((name for name in _called(helper, call) if name in made), None) if helper else None
                if helper is not None and child is not None:
                    yield self.at(facts, call, child=child, helper=helper.name, module=cls.name)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Write what the function returns where it is called."""
        cls = next((one for one in facts.classes.values() if node in walk(one.node)), None)
        forward = cls.methods.get("forward") if cls else None
        if cls is None or forward is None or not isinstance(node, ast.Call):
            return
        helper = _helper(facts, cls, node)
        text = inlined(facts, helper, node, forward) if helper is not None else None
        if text is not None:
            yield replaced(facts, node, text)


def _helper(facts: Facts, cls: ClassFacts, call: ast.Call) -> ast.FunctionDef | None:
    """The function of this file that ``call`` runs, where no class below ``cls`` has one of its own."""
    found = facts.called(cls, call)
    name = on_self(call.func)
    below = [one for one in facts.classes.values() if one is not cls and cls in facts.lineage(one)]
    return None if name and any(name in one.methods for one in below) else found


def _called(helper: ast.FunctionDef, call: ast.Call) -> Iterator[str]:
    """The children that a one-line function calls."""
    value, given = returned(helper), arguments(helper, call)
    for inner in calls_in(value) if value is not None and given is not None else ():
        if isinstance(inner.func, ast.Name) and given is not None and (one := given.get(inner.func.id)) is not None:
            yield on_self(one) or ""
        yield on_self(inner.func) or ""
