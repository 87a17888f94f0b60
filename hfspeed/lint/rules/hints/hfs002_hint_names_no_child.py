"""A hint names a child that the class never gets."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.hints.truth import help_for
from hfspeed.lint.classes import ENDS, ClassFacts
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit, Finding, Severity
from hfspeed.lint.lines import respelled
from hfspeed.lint.nodes import walk
from hfspeed.lint.rule import Rule
from hfspeed.lint.said import hints_in


class HintNamesNoChild(Rule):
    """A hint gives roles to children by their names. A name that is assigned nowhere in the class or in what it
    derives from is a slip of the pen, or was left behind when the child was renamed.
    """

    code = "HFS002"
    since = "0.1"
    severity = Severity.ERROR
    message = "`{role}` names `{child}`, which is no child of `{cls}`"
    cost = "@{kind} is not followed"
    help = "{help}"

    bad = Example("""
        from hfspeed import attention

        @attention(query="q_prj", key="k_proj")  # HFS002
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)
    """)
    good = Example("""
        from hfspeed import attention

        @attention(query="q_proj", key="k_proj")
        class Attention(nn.Module):
            def __init__(self, size):
                super().__init__()
                self.q_proj = nn.Linear(size, size)
                self.k_proj = nn.Linear(size, size)
    """)

    def check(self, facts: Facts) -> Iterator[Finding]:
        """Look up every name in every hint, where all that the class derives from can be seen."""
        for cls, kind, call in hints_in(facts):
            children = _children(facts, cls)
            for role, node, name in _names(call) if children is not None else ():
                if name.split(".")[0] not in (children or ()):
                    words = {"role": role, "child": name, "cls": cls.name, "kind": kind}
                    yield self.at(facts, node, **words, help=help_for(name, _modules(facts, cls)))

    def propose(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Name the child that is spelled most like it."""
        cls = next(cls for cls, _, call in hints_in(facts) if node in walk(call))
        if isinstance(node, ast.Constant):
            edit = respelled(facts, node, str(node.value).split(".")[0], sorted(_modules(facts, cls)))
            yield from () if edit is None else (edit,)


def _names(call: ast.Call) -> Iterator[tuple[str, ast.expr, str]]:
    given = [("layers", value) for value in call.args[:1]]
    given += [(keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg]
    for role, node in given:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield role, node, node.value


def _children(facts: Facts, cls: ClassFacts) -> set[str] | None:
    """Every name that an instance can have; ``None`` when some cannot be seen."""
    lineage = facts.lineage(cls)
    seen = {one.name for one in lineage}
    whole = all(base in seen or base in ENDS for one in lineage for base in one.bases)
    if not whole or any(one.names_made_at_run_time for one in lineage):
        return None
    return {name for one in lineage for name in one.assigned}


def _modules(facts: Facts, cls: ClassFacts) -> set[str]:
    """The names to propose: those that are given a call's result."""
    assigned = [pair for one in facts.lineage(cls) for pair in one.assigned.items()]
    return {name for name, values in assigned if any(isinstance(value, ast.Call) for value in values)}
