"""A forward reads a tensor's value into Python."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.compiled import runs, served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.rule import Rule

READS = frozenset({"item", "numpy", "tolist"})
PLAIN = frozenset({"config", "np", "numpy"})


class HostRead(Rule):
    """The host waits until the device has computed the value, in every layer and for every token, and a graph that was
    captured once cannot hold what Python decides afterwards.
    """

    code = "HFS601"
    since = "0.1"
    message = "`{read}` waits for the device in `{module}.{function}`"
    cost = "`{module}` breaks the compiled graph and stops the device at every step"
    help = "keep the value a tensor, or compute it in __init__ from the configuration"

    bad = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x, position_ids=None):
                longest = position_ids.max().item()  # HFS601
                return self.rotate(x, longest)
    """)
    good = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x, position_ids=None):
                return self.rotate(x, self.config.max_position_embeddings)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for reads of values in all that is served."""
        for cls, function in served(facts):
            for node in runs(function):
                if isinstance(node, ast.Call) and _reads(node):
                    words = {"read": ast.unparse(node)[-40:], "module": cls.name, "function": function.name}
                    yield self.at(facts, node, **words)


def _reads(call: ast.Call) -> bool:
    """``x.item()``; not of what is no tensor by its name."""
    if call.args or call.keywords or not isinstance(call.func, ast.Attribute) or call.func.attr not in READS:
        return False
    root: ast.expr = call.func.value
    while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
        if last_name(root) in PLAIN:
            return False
        root = root.func if isinstance(root, ast.Call) else root.value
    return not (isinstance(root, ast.Name) and root.id in PLAIN)
