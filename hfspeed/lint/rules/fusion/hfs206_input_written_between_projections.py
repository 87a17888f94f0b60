"""A value changes between the projections that share it."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts, on_self
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.linears import linears
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rewrite import replaced, source
from hfspeed.lint.rule import Rule
from hfspeed.refusal import Reason

OPERATIONS = frozenset({
    "abs_", "add_", "clamp_", "div_", "masked_fill_", "mul_", "neg_", "relu_", "sigmoid_", "sub_", "tanh_",
})  # fmt: skip


class InputWrittenBetweenProjections(Rule):
    """Stacked projections read their input once. If something writes that input, or a view of it, between the
    first projection and the last, the later ones would read a value they should not.
    """

    code = "HFS206"
    since = "0.1"
    reasons = (Reason.INPUT_WRITTEN,)
    message = "`{value}` is written between `{first}` and `{last}`"
    cost = "the projections stay separate GEMMs in `{module}`"
    help = "give what is computed here a value of its own, or write after the last projection"

    bad = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)
                self.v_proj = nn.Linear(size, size)

            def forward(self, x, scale):
                q = self.q_proj(x)
                x.mul_(scale)  # HFS206
                k = self.k_proj(x)
                v = self.v_proj(x)
                return q, k, v
    """)
    good = Example("""
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)
                self.v_proj = nn.Linear(size, size)

            def forward(self, x, scale):
                q = self.q_proj(x)
                x = x.mul(scale)
                k = self.k_proj(x)
                v = self.v_proj(x)
                return q, k, v
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look in every forward for a write in place of a name that linears read before and after it."""
        for cls in facts.classes.values():
            forward, made = cls.methods.get("forward"), linears(facts, cls)
            if forward is None or len(made) < 2:
                continue
            for place, statement in enumerate(forward.body):
                name = _written(statement)
                before = [child for one in forward.body[:place] for child in _reading(one, name, made)]
                after = [child for one in forward.body[place + 1 :] for child in _reading(one, name, made)]
                if name and before and after and not _given_anew(forward.body[:place], name, before[0], made):
                    words = {"value": name, "first": before[-1], "last": after[-1], "module": cls.name}
                    yield self.at(facts, statement, **words)

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Split it: compute a new value, and give it the name. Whoever holds the old value keeps it as it was."""
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name, value = node.target.id, source(facts, node.value)
            sign = source(facts, node).removeprefix(name).strip().partition("=")[0]
            simple = isinstance(node.value, ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript)
            yield replaced(facts, node, f"{name} = {name} {sign} {value if simple else f'({value})'}")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            name, written = _written(node), source(facts, node)
            assert isinstance(node.value.func, ast.Attribute)
            method = f".{node.value.func.attr}"
            yield replaced(facts, node, f"{name} = {written.replace(method, method[:-1], 1)}")


def _written(statement: ast.stmt) -> str:
    """The name whose value a statement writes over: ``x += y`` or ``x.mul_(y)``; empty for any other."""
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    call = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in OPERATIONS:
        return call.func.value.id if isinstance(call.func.value, ast.Name) else ""
    return ""


def _reading(statement: ast.stmt, name: str, made: set[str]) -> Iterator[str]:
    """The linears that a statement calls with ``name`` and nothing else."""
    for call in calls_in(statement):
        child = on_self(call.func)
        if child in made and [ast.unparse(one) for one in call.args] == [name] and not call.keywords:
            yield child or ""


def _given_anew(block: list[ast.stmt], name: str, child: str, made: set[str]) -> bool:
    """Whether ``name`` is another value since ``child`` read it."""
    last = max(index for index, one in enumerate(block) if child in _reading(one, name, made))
    stored = [node for one in block[last:] if not _written(one) for node in walk(one) if isinstance(node, ast.Name)]
    return any(node.id == name and isinstance(node.ctx, ast.Store) for node in stored)
