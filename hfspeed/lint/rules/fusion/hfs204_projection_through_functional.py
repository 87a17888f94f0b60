"""A projection's weight is multiplied directly, past the projection."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Finding
from hfspeed.lint.nodes import calls_in
from hfspeed.lint.rule import Rule

PRODUCTS = frozenset({"addmm", "linear", "matmul", "mm"})


class ProjectionThroughFunctional(Rule):
    """Once a projection is stacked, split over ranks or quantized, its weight is no longer the matrix that the
    child was made with. Only calling the child asks for what it computes.
    """

    code = "HFS204"
    since = "0.1"
    message = "`{child}.weight` is multiplied by `{call}`, past the projection"
    cost = "`{child}` is neither fused, split over ranks nor quantized"
    help = "call self.{child}(x)"

    bad = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)

            def forward(self, x):
                return F.linear(x, self.q_proj.weight)  # HFS204
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
        """Look in every forward for a product that reads the weight of a child made as a linear."""
        told = set()
        for cls in facts.classes.values():
            linear = _linear(facts, cls)
            for function in facts.reached(cls):
                for call in calls_in(function):
                    child = _weight_of(call)
                    if child in linear and call not in told:
                        told.add(call)
                        yield self.at(facts, call, child=child or "", call=ast.unparse(call.func))


def _linear(facts: Facts, cls: ClassFacts) -> set[str]:
    return {
        name
        for one in facts.lineage(cls)
        for name, values in one.assigned.items()
        if any(isinstance(value, ast.Call) and last_name(value.func) == "Linear" for value in values)
    }


def _weight_of(call: ast.Call) -> str | None:
    """``q`` of ``F.linear(x, self.q.weight)``, also where the weight is cast or transposed first."""
    if last_name(call.func) not in PRODUCTS:
        return None
    for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
        node: ast.expr = argument
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
            node = node.value
        if isinstance(node, ast.Attribute) and node.attr == "weight":
            return on_self(node.value)
    return None
