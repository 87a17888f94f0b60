"""A comment silences a rule that says nothing there."""

import ast
from collections.abc import Iterator

from hfspeed.example import Example
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit
from hfspeed.lint.rule import Rule


class UnusedIgnore(Rule):
    """A comment that has outlived what it silenced hides the next finding on its line. Codes of other tools and a bare
    noqa are theirs to judge. ruff takes codes away that it does not know, unless lint.external says "HFS".
    """

    code = "HFS902"
    since = "0.1"
    message = "the comment silences {said}, and there is nothing to silence"
    cost = "the next finding here would be hidden"
    help = "take the code out of the comment"

    bad = Example("""
        x = 1  # hfspeed: ignore[HFS102]  # HFS902
    """)
    good = Example("""
        x = 1
    """)

    def mend(self, facts: Facts, node: ast.AST) -> Iterator[Edit]:
        """Made where comments are read; a comment is no node."""
        yield from ()
