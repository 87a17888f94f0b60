"""An assignment may go only if nothing that stays can read what it binds."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from hfspeed.source.unread import unread

sys.path.insert(0, str(Path(__file__).parent))
from authored import forward

GOES = {
    "read by what is replaced": "a = x\nreturn GONE(a)",
    "never read": "a = x\nreturn GONE(x)",
    "bound anew": "a = x\na = GONE(a)\nreturn a",
    "bound anew later": "a = x\nb = GONE(a)\na = b\nreturn a",
    "bound anew from something else": "a = x\nb = GONE(a)\nb, a = b, x\nreturn a + b",
    "annotated": "a: int = x\nreturn GONE(a)",
    "a pair": "a, b = x\nreturn GONE(a, b)",
    "read before": "b = self.a\na = x\nreturn GONE(a) + b",
    "in a branch": "if x:\n    a = x\n    return GONE(a)\nreturn x",
    "an attribute of the same name": "a = x\nreturn GONE(a) + self.a + x.a",
    "a keyword of the same name": "a = x\nreturn GONE(a) + f(a=1)",
}
STAYS = {
    "read later": "a = x\nb = GONE(a)\nreturn a + b",
    "read in the same statement": "a = x\nreturn GONE(a) + a",
    "read before it is bound anew": "a = x\nb = GONE(a)\na = a + b\nreturn a",
    "added to": "a = x\nb = GONE(a)\na += b\nreturn a",
    "added to and never read": "a = x\nb = GONE(a)\na += 1\nreturn b",
    "deleted": "a = x\nb = GONE(a)\ndel a\nreturn b",
    "stored into": "a = x\nb = GONE(a)\na[0] = 1\nreturn b",
    "bound anew in a branch": "a = x\nb = GONE(a)\nif b:\n    a = b\nreturn a",
    "bound anew in a loop": "a = x\nb = GONE(a)\nfor a in b:\n    pass\nreturn a",
    "read in a branch": "a = x\nb = GONE(a)\nif self.training:\n    return a\nreturn b",
    "read by a lambda before": "f = lambda: a\na = x\nb = GONE(a)\na = 1\nreturn f() + b",
    "read by a function": "def f():\n    return a\na = x\nb = f() + GONE(a)\na = 1\nreturn b",
    "read by a generator": "a = x\nb = (i for i in a)\nc = GONE(a)\nreturn list(b), c",
    "hidden by a comprehension": "a = x\nb = GONE(a)\nc = [a for a in b]\nreturn a, c",
    "one of a pair": "a, b = x\nc = GONE(a, b)\nreturn b + c",
    "in a loop, read in the next turn": "for i in x:\n    c = f(a) if i else 0\n    a = x\n    c = GONE(a)\nreturn c",
    "in a branch, read behind it": "if x:\n    a = x\n    b = GONE(a)\nreturn a",
    "an item": "a[0] = x\nreturn GONE(a)",
    "an attribute": "self.a = x\nreturn GONE(self.a)",
    "starred": "a, *b = x\nreturn GONE(a, b)",
    "two targets": "a = b = x\nreturn GONE(a) + b",
    "no assignment": "a += x\nreturn GONE(a)",
}


def asked(tmp_path: Path, body: str) -> bool:
    """Whether the first assignment whose value mentions `x` and target `a` may go once ``GONE(…)`` is replaced."""
    recovered = forward(tmp_path, "def forward(self, x):\n" + "".join(f"    {line}\n" for line in body.splitlines()))
    nodes = list(ast.walk(recovered.tree))
    (gone,) = (n for n in nodes if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "GONE")
    binds = (n for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign | ast.AugAssign) and gone not in ast.walk(n))
    stmt = next(n for n in binds if recovered.segment(n).startswith(("a", "self.a")))
    return unread(recovered, stmt, gone)


@pytest.mark.parametrize("what", GOES)
def test_goes(what: str, tmp_path: Path) -> None:
    assert asked(tmp_path, GOES[what])


@pytest.mark.parametrize("what", STAYS)
def test_stays(what: str, tmp_path: Path) -> None:
    assert not asked(tmp_path, STAYS[what])
