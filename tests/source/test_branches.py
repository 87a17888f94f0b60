"""Places in different branches of one `if` are told from places that one pass may both reach."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from hfspeed.source.branches import apart

sys.path.insert(0, str(Path(__file__).parent))
from authored import read


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("if y:\n        one\n    else:\n        other", True),
        ("if y:\n        one\n    elif x:\n        other", True),
        ("if y:\n        if x:\n            one\n    else:\n        other", True),
        ("if y:\n        one\n    other", False),
        ("if y:\n        one\n    if not y:\n        other", False),
        ("if one:\n        other", False),
        ("for _ in x:\n        if y:\n            one\n        else:\n            other", False),
    ],
)
def test_apart(body: str, told: bool) -> None:
    recovered = read(f"def forward(self, x, y):\n    {body}\n")
    names = {node.id: node for node in ast.walk(recovered.tree) if isinstance(node, ast.Name)}
    assert apart(recovered, names["one"], names["other"]) is told
