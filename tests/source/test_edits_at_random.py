"""Whatever is inserted and deleted together, the text that results has the tree it should."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hfspeed.source import Edits

sys.path.insert(0, str(Path(__file__).parent))
from authored import read

BODY = """\
def forward(self, x, y=2):
    a = self.q(x); b = self.k(x)  # pair
    if a: c = 1; d = 2
    elif b:
        c = d = 0
    else: c = (
        3)
    for i in x: a += i
    with y as z:
        pass
    s = '''one
  two'''
    return a, b
"""


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.data())
def test_any_choice_of_edits_gives_the_tree_it_should(data: st.DataObject) -> None:
    recovered = read(BODY.rstrip("\n"))
    statements = [
        n
        for n in ast.walk(recovered.tree)
        if isinstance(n, ast.stmt) and n is not recovered.tree and not recovered.segment(n).startswith("elif")
    ]
    edits = Edits(recovered)
    before: dict[ast.stmt, list[str]] = {}
    after: dict[ast.stmt, list[str]] = {}
    gone: list[ast.stmt] = []
    for number, stmt in enumerate(statements):
        choice = data.draw(st.sampled_from(["none", "none", "before", "after", "delete"]))
        if choice == "before":
            edits.insert_before(stmt, f"if new_{number}:\n    go()")
            before[stmt] = [f"if new_{number}:\n    go()"]
        elif choice == "after":
            edits.insert_after(stmt, f"new_{number}()")
            after[stmt] = [f"new_{number}()"]
        elif choice == "delete" and isinstance(stmt, ast.Assign | ast.AugAssign | ast.Return):
            edits.delete(stmt)
            gone.append(stmt)
    text = edits.apply()
    for node in ast.walk(recovered.tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [s for stmt in block for s in _around(stmt, before, after) if s not in gone])
    assert _without_pass(ast.parse(text)) == _without_pass(recovered.tree)


def _without_pass(tree: ast.AST) -> str:
    """The tree's text; a ``pass`` says nothing, so neither an empty block nor one beside others differ."""
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                setattr(node, name, [stmt for stmt in block if not isinstance(stmt, ast.Pass)])
    return ast.unparse(tree)


def _around(stmt: ast.stmt, before: dict[ast.stmt, list[str]], after: dict[ast.stmt, list[str]]) -> list[ast.stmt]:
    return [
        *(ast.parse(text).body[0] for text in before.get(stmt, [])),
        stmt,
        *(ast.parse(text).body[0] for text in after.get(stmt, [])),
    ]
