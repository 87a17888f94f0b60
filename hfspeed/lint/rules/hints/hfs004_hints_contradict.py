"""Two things are said of one class that cannot both be so."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.rule import Rule
from hfspeed.lint.said import hints_in


class HintsContradict(Rule):
    """A child plays one part in one hint, and a class is hinted once in one way. Where two are given, only the author
    knows which is meant.
    """

    code = "HFS004"
    since = "0.1"
    severity = Severity.ERROR
    message = "{contradiction}"
    cost = "@{kind} is not followed"
    help = "say it once"

    bad = Example("""
        from hfspeed import attention

        @attention(query="q_proj", key="q_proj")  # HFS004
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
        """Compare the roles of one hint with each other, and the hints of one class."""
        seen: set[tuple[str, str]] = set()
        for cls, kind, call in hints_in(facts):
            if (cls.name, kind) in seen:
                yield self.at(facts, call, contradiction=f"`{cls.name}` has @{kind} more than once", kind=kind)
            seen.add((cls.name, kind))
            roles: dict[str, str] = {}
            for keyword in call.keywords:
                if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
                    continue
                child = keyword.value.value
                if isinstance(child, str) and child in roles:
                    said = f"`{child}` is said to be {roles[child]} and {keyword.arg}"
                    yield self.at(facts, keyword.value, contradiction=said, kind=kind)
                elif isinstance(child, str):
                    roles[child] = keyword.arg
