"""A forward takes a branch by a tensor's value."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.compiled import NOT_SERVED, runs, served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rule import Rule

TORCH = frozenset({"all", "allclose", "any", "equal", "is_nonzero"})


class BranchOnTensor(Rule):
    """Which way to go is only known on the host when the device is done, and one graph cannot hold both ways. While a
    graph is captured, such a branch fails or freezes.
    """

    code = "HFS603"
    since = "0.1"
    message = "`{module}.{function}` branches on the value of `{test}`"
    cost = "`{module}` breaks the compiled graph and stops the device at every step"
    help = "compute both ways and choose with torch.where, or decide by the configuration"

    bad = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x, attention_mask=None):
                if (attention_mask == 0).any():  # HFS603
                    x = x * attention_mask[..., None]
                return self.head(x)
    """)
    good = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, x, attention_mask=None):
                if attention_mask is not None:
                    x = x * attention_mask[..., None]
                return self.head(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at the condition of every branch in all that is served."""
        for cls, function in served(facts):
            for node in runs(function):
                if isinstance(node, ast.If | ast.While | ast.IfExp) and (asked := _asks(node.test)) is not None:
                    words = {"test": ast.unparse(asked)[:40], "module": cls.name, "function": function.name}
                    yield self.at(facts, asked, **words)


def _asks(test: ast.expr) -> ast.Call | None:
    """The call in ``test`` that gives a tensor of one truth; none when the test also asks how it is run."""
    if any(last_name(node) in NOT_SERVED for node in walk(test)):
        return None
    for call in calls_in(test):
        if not isinstance(call.func, ast.Attribute):
            continue
        if last_name(call.func.value) == "torch" and call.func.attr in TORCH:
            return call
        if call.func.attr in ("any", "all") and not call.args and last_name(call.func.value) not in ("np", "numpy"):
            return call
    return None
