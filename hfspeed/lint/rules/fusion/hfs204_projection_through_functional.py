"""A projection's weight is multiplied directly, past the projection."""

import ast
from collections.abc import Iterator
from typing import Any

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.linears import linears
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule

FUNCTIONAL = frozenset({"F.linear", "nn.functional.linear", "torch.nn.functional.linear"})
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
                self.q_proj = nn.Linear(size, size, bias=False)

            def forward(self, x):
                return F.linear(x, self.q_proj.weight)  # HFS204
    """)
    good = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size, bias=False)

            def forward(self, x):
                return self.q_proj(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in every forward for a product that reads the weight of a child made as a linear."""
        told = set()
        for cls in facts.classes.values():
            made = linears(facts, cls)
            for function in facts.reached(cls):
                for call in calls_in(function):
                    child = _weight_of(call)
                    if child in made and call not in told:
                        told.add(call)
                        yield self.at(facts, call, child=child or "", call=ast.unparse(call.func))

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Call the child, where its own forward is the very same call."""
        assert isinstance(node, ast.Call)
        child = _weight_of(node) or ""
        cls = next((one for one in facts.classes.values() if node in walk(one.node)), None)
        made = [value for one in facts.lineage(cls) for value in one.assigned.get(child, [])] if cls else []
        given = _given(node)
        if len(made) != 1 or given is None or ast.unparse(node.func) not in FUNCTIONAL:
            return
        biased = _biased(made[0])
        own = "bias" in given and isinstance(given["bias"], ast.Attribute) and given["bias"].attr == "bias"
        same = own and on_self(given["bias"].value) == child if "bias" in given else biased is False
        if same:
            yield replaced(facts, node, f"self.{child}({source(facts, given['input'])})")


def _given(call: ast.Call) -> dict[str, Any] | None:
    """The arguments of ``F.linear`` by name, where the weight is named as it is."""
    names = ("input", "weight", "bias")
    starred = any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
    given: dict[str, Any] = dict(zip(names, call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    plain = isinstance(given.get("weight"), ast.Attribute) and given["weight"].attr == "weight"
    return given if plain and "input" in given and not starred and set(given) <= set(names) else None


def _biased(made: ast.expr) -> bool | None:
    """Whether ``nn.Linear(…)`` was made with a bias; ``None`` when that is not written out."""
    if not isinstance(made, ast.Call) or ast.unparse(made.func) not in ("nn.Linear", "torch.nn.Linear"):
        return None
    said = made.args[2] if len(made.args) > 2 else next((one.value for one in made.keywords if one.arg == "bias"), None)
    if said is None:
        return True
    return said.value if isinstance(said, ast.Constant) and isinstance(said.value, bool) else None


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
