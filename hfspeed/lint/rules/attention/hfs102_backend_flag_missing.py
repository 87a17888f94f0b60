"""The attention interface is used, but the model does not say so."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.classes import ClassFacts
from hfspeed.lint.facts import Facts, dispatches
from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.hops import CROSS
from hfspeed.lint.nodes import walk
from hfspeed.lint.rewrite import inserted, replaced
from hfspeed.lint.rule import Rule

FLAG = "_supports_attention_backend"


class BackendFlagMissing(Rule):
    """vLLM's own backend asks the class, not the code, whether attention can be exchanged. Without the flag it refuses
    a model that would work. hfspeed looks at the code.
    """

    code = "HFS102"
    since = "0.1"
    message = "`{cls}` does not set `_supports_attention_backend`"
    cost = "vLLM without hfspeed refuses the model"
    help = "write _supports_attention_backend = True in `{cls}`"

    bad = Example("""
        class SmallAttention(nn.Module):
            def forward(self, x, attention_mask=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class SmallPreTrainedModel(PreTrainedModel):  # HFS102
            base_model_prefix = "model"

        class SmallForCausalLM(SmallPreTrainedModel):
            pass
    """)
    good = Example("""
        class SmallAttention(nn.Module):
            def forward(self, x, attention_mask=None, **kwargs):
                interface = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
                return interface(self, x, x, x, attention_mask, **kwargs)[0]

        class SmallPreTrainedModel(PreTrainedModel):
            base_model_prefix = "model"
            _supports_attention_backend = True

        class SmallForCausalLM(SmallPreTrainedModel):
            pass
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look at what each causal language model derives from, in files whose attention is causal throughout."""
        if not _self_attention_only(facts):
            return
        told = set()
        for cls in facts.causal:
            lineage = facts.lineage(cls)
            root = next((one for one in reversed(lineage) if "PreTrainedModel" in one.bases), None)
            if root is None or any(FLAG in one.assigned for one in lineage) or root in told:
                continue
            told.add(root)
            yield self.at(facts, root.node, cls=root.name)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Put the flag behind the last assignment at the top of the class."""
        assert isinstance(node, ast.ClassDef)
        first, last = node.body[0], _last_assignment(node)
        if isinstance(first, ast.Pass):
            yield replaced(facts, first, f"{FLAG} = True")
        elif first.lineno > node.lineno:
            place = facts.span(last or first)
            line = place.end_line or place.line
            white = " " * (facts.span(first).column - 1)
            if last is not None:
                yield inserted(facts, line, len(facts.lines[line - 1]) + 1, f"\n{white}{FLAG} = True")
            else:
                start = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))])
                yield inserted(facts, start, 1, f"{white}{FLAG} = True\n\n")


def _last_assignment(node: ast.ClassDef) -> ast.stmt | None:
    """The last of the statements before the first method; a docstring, when there are no others."""
    found = None
    for statement in node.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            break
        found = statement
    return found


def _self_attention_only(facts: Facts) -> bool:
    """Whether some class asks the interface, and none of those that do attends to another sequence."""
    asking = [cls for cls in facts.classes.values() if any(dispatches(one) for one in facts.reached(cls))]
    return bool(asking) and not any(_attends_elsewhere(facts, cls) for cls in asking)


def _attends_elsewhere(facts: Facts, cls: ClassFacts) -> bool:
    forward = facts.method(cls, "forward")
    return forward is not None and any(isinstance(node, ast.arg) and node.arg in CROSS for node in walk(forward))
