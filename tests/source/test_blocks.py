"""Calls become one only where one of them runs whatever branch is taken."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

import pytest

from hfspeed.refusal import Reason, Refused
from hfspeed.source import Recovered, between, dominating_block

sys.path.insert(0, str(Path(__file__).parent))
from authored import forward


def read(tmp_path: Path, body: str) -> tuple[Recovered, list[ast.AST]]:
    """The calls named ``q``, ``k``, ``v`` on ``self``, in the order of the text."""
    recovered = forward(tmp_path, "def forward(self, x, y=None):\n" + textwrap.indent(textwrap.dedent(body), "    "))
    calls = [
        n
        for n in ast.walk(recovered.tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in "qkv"
    ]
    return recovered, sorted(calls, key=lambda n: (n.lineno, n.col_offset))


def test_one_block_and_the_first_of_several(tmp_path: Path) -> None:
    recovered, (q, k, v) = read(
        tmp_path,
        """
        a = 1
        with torch.no_grad():
            b = 2
            q, k = self.q(x).view(1), self.k(x)
            c = 3
            return f(q, k, self.v(x))
        """,
    )
    block, index = dominating_block(recovered, [v, q, k])
    assert block is recovered.tree.body[1].body  # type: ignore[attr-defined]
    assert index == 1
    stretch = between(block, index, recovered.statement_of(v))
    assert [ast.unparse(stmt).split(" =")[0] for stmt in stretch] == ["q, k", "c"] or len(stretch) == 2
    assert dominating_block(recovered, [recovered.statement_of(q)])[1] == 1


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if y:\n    q = self.q(x)\nelse:\n    k = self.k(x)", "in a branch that another run may not take"),
        ("if y:\n    q = self.q(x)\nif y > 1:\n    k = self.k(x)", "in a branch that another run may not take"),
        ("q = self.q(x) if y else x\nk = y and self.k(x)", "in a branch that another run may not take"),
        ("q = self.q(x)\nif y:\n    for i in x:\n        k = self.k(x)", "a loop separates them"),
        ("q = self.q(x)\nfor i in x:\n    k = self.k(x)", "a loop separates them"),
        ("q = self.q(x)\nwith y:\n    k = self.k(x)", "a `with` separates them"),
        ("try:\n    q = self.q(x)\nfinally:\n    k = self.k(x)", "another branch of one statement"),
        ("q = self.q(x)\ndef f():\n    return self.k(x)", "a nested function separates them"),
        ("q = self.q(x)\nk = [self.k(x) for i in y]", "a comprehension"),
        ("q = self.q(x)\nk = lambda: self.k(x)", "a lambda"),
        ("q = self.q(x)\nwhile self.k(x):\n    pass", "the test of a `while`"),
        ("if y:\n    pass\nelif self.q(x) + self.k(x):\n    pass", "the test of an `elif`"),
    ],
)
def test_calls_that_do_not_belong_together(tmp_path: Path, body: str, found: str) -> None:
    recovered, calls = read(tmp_path, body)
    with pytest.raises(Refused) as caught:
        dominating_block(recovered, calls)
    refusal = caught.value.refusal
    assert refusal.reason is Reason.DIFFERENT_BLOCKS
    assert found in refusal.found
    assert refusal.place in {recovered.place(call) for call in calls}


@pytest.mark.parametrize(
    "body",
    [
        "q = self.q(x)\nif y:\n    k = self.k(x)",
        "q = self.q(x)\nif y:\n    pass\nelif x:\n    k = self.k(x)",
        "if y:\n    q = self.q(x)\nk = self.k(x)",
        "q = self.q(x)\nk = self.k(x) if y else None",
        "q = self.q(x)\nk = y and self.k(x)",
        "q = self.q(x)\nk = 1 < y < self.k(x)",
        "q = self.q(x) if self.k(x) is None else 1\nk = self.k(x)",
        "q = self.q(x) and 1\nk = self.k(x)",
        "if self.q(x):\n    pass\nk = self.k(x)",
        "for i in self.q(x):\n    pass\nk = self.k(x)",
        "q = self.q(x)\nif x is None:\n    return y\nk = 1 < self.k(x) < 2",
    ],
)
def test_what_always_runs_is_taken(tmp_path: Path, body: str) -> None:
    recovered, calls = read(tmp_path, body)
    if "if self.k" in body:
        calls = calls[1:]
    assert dominating_block(recovered, calls)[1] == 0
