"""Experts run one after another, each on as many tokens as chose it."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.compiled import served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.lint.rule import Rule

KNOWN = frozenset({"experts", "use_experts_implementation", "use_kernel_forward_from_hub"})


class ExpertsInALoop(Rule):
    """How many tokens an expert gets is known when the router has run, so every step has other shapes: no graph can be
    captured, and hundreds of small products take the place of one large.
    """

    code = "HFS301"
    since = "0.1"
    message = "`{module}` finds the tokens of each expert in a loop, with `{call}`"
    cost = "the experts of `{module}` run one after another, outside of any graph"
    help = "give the experts a module of their own that takes tokens, chosen experts and weights"
    served = (Severity.INFO, "vLLM without hfspeed runs the experts one after another, outside of any graph")

    bad = Example("""
        class Block(nn.Module):
            def forward(self, x):
                weights, chosen = self.route(x)
                y = torch.zeros_like(x)
                for index, expert in enumerate(self.experts):
                    token, slot = torch.where(chosen == index)  # HFS301
                    y.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
                return y

        class SmallForCausalLM(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.block = Block()

            def forward(self, x):
                return self.block(x)
    """)
    good = Example("""
        class Block(nn.Module):
            def forward(self, x):
                weights, chosen = self.route(x)
                return self.experts(x, chosen, weights)

        class SmallForCausalLM(PreTrainedModel):
            def __init__(self, config):
                super().__init__(config)
                self.block = Block()

            def forward(self, x):
                return self.block(x)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for loops that find their tokens, in classes that no decorator takes care of and that route, too."""
        for cls, function in served(facts):
            named = (one.func if isinstance(one, ast.Call) else one for one in cls.node.decorator_list)
            if any(last_name(one) in KNOWN for one in named) or _is_told(function):
                continue
            for loop in (node for node in walk(function) if isinstance(node, ast.For)):
                finds = [call for call in calls_in(loop) if _finds(call)]
                if finds and any(_puts_back(call) for call in calls_in(loop)):
                    yield self.at(facts, finds[0], module=cls.name, call=ast.unparse(finds[0].func))


def _is_told(function: ast.FunctionDef) -> bool:
    """Whether a function is given tokens, chosen experts and weights, so that a kernel can take its place."""
    return len(function.args.posonlyargs) + len(function.args.args) >= 4


def _finds(call: ast.Call) -> bool:
    """``torch.where(x)`` with the condition alone, or ``nonzero``: places of which nobody knows how many."""
    alone = last_name(call.func) == "where" and len(call.args) == 1 and not call.keywords
    return alone or last_name(call.func) == "nonzero"


def _puts_back(call: ast.Call) -> bool:
    return last_name(call.func) in ("index_add_", "index_add", "scatter_add_", "index_put_")
