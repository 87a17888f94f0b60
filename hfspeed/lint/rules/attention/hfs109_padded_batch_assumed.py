"""Positions are counted over the attention mask."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import last_name
from hfspeed.lint.compiled import served
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule

COUNTS = frozenset({"argmax", "argmin", "cumsum", "sum"})
MASK, POSITIONS = "attention_mask", "position_ids"


class PaddedBatchAssumed(Rule):
    """A server pads nothing: sequences lie side by side without a mask, and each token comes with its position. What is
    counted over a mask of ones and zeros is then counted over nothing.
    """

    code = "HFS109"
    since = "0.1"
    preview = True
    message = "`{module}` counts over `attention_mask`, with `{call}`"
    cost = "the model cannot be served where its positions or lengths come from there"
    help = "take position_ids, and count only if it is None"

    bad = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, input_ids, attention_mask=None):
                positions = attention_mask.cumsum(-1) - 1  # HFS109
                return self.head(self.embed(input_ids) + self.table(positions))
    """)
    good = Example("""
        class SmallForCausalLM(PreTrainedModel):
            def forward(self, input_ids, attention_mask=None, position_ids=None):
                if position_ids is None:
                    position_ids = attention_mask.cumsum(-1) - 1
                return self.head(self.embed(input_ids) + self.table(position_ids))
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look for counts over a value of that name where no branch has said that positions are missing."""
        for cls, function in served(facts):
            excused = {inner for node in walk(function) if _without(node) for inner in walk(node)}
            for call in (node for node in walk(function) if isinstance(node, ast.Call) and node not in excused):
                if last_name(call.func) in COUNTS and any(_is_mask(part) for part in _operands(call)):
                    yield self.at(facts, call, module=cls.name, call=ast.unparse(call.func).partition("(")[0])


def _without(node: ast.AST) -> bool:
    """``if position_ids is None``, or an expression or function that is about them."""
    if isinstance(node, ast.If | ast.IfExp):
        return any(isinstance(part, ast.Name) and POSITIONS in part.id for part in walk(node.test))
    return isinstance(node, ast.FunctionDef) and "prepare" in node.name


def _operands(call: ast.Call) -> list[ast.expr]:
    return [*call.args[:1], *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]


def _is_mask(node: ast.expr) -> bool:
    """The mask, cast or compared or not."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    if isinstance(node, ast.Compare):
        node = node.left
    return isinstance(node, ast.Name) and node.id == MASK
