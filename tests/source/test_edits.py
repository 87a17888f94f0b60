"""Edits land where they were asked for, keep the rest to the byte, and never overlap."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

import pytest

from hfspeed.source import Edits, Recovered

sys.path.insert(0, str(Path(__file__).parent))
from authored import author, forward, read

from hfspeed.source import recover


def find(recovered: Recovered, text: str) -> ast.AST:
    return next(n for n in ast.walk(recovered.tree) if hasattr(n, "lineno") and recovered.segment(n).strip() == text)


def statement(recovered: Recovered, text: str) -> ast.stmt:
    return recovered.statement_of(find(recovered, text))


def dedent(text: str) -> str:
    return textwrap.dedent(text).strip("\n")


def test_replace_insert_delete_together(tmp_path: Path) -> None:
    recovered = forward(
        tmp_path,
        """
        def forward(self, x):
            # q
            q = self.q(x)  # the query
            k = self.k(x)

            if x is None:
                y = 1  # only this
            return q, k
        """,
    )
    edits = Edits(recovered)
    edits.replace(find(recovered, "self.k(x)"), "k_part")
    edits.replace(find(recovered, "self.q(x)"), "q_part")
    edits.insert_before(statement(recovered, "q = self.q(x)"), "q_part, k_part = self.qk(x).split(\n    2\n)")
    edits.delete(statement(recovered, "y = 1"))
    edits.insert_after(statement(recovered, "k = self.k(x)"), "k = k + 0")
    assert edits.apply() == dedent("""
        def forward(self, x):
            # q
            q_part, k_part = self.qk(x).split(
                2
            )
            q = q_part  # the query
            k = k_part
            k = k + 0

            if x is None:
                pass  # only this
            return q, k
        """)


def test_insertions_at_one_place_keep_their_order_and_deletions_of_neighbours(tmp_path: Path) -> None:
    recovered = forward(tmp_path, "def forward(self, x):\n    a = 1\n    b = 2\n    return x")
    edits = Edits(recovered)
    edits.insert_before(statement(recovered, "b = 2"), "one()")
    edits.insert_before(statement(recovered, "b = 2"), "two()")
    edits.delete(statement(recovered, "b = 2"))
    edits.delete(statement(recovered, "a = 1"))
    assert edits.apply() == "def forward(self, x):\n    one()\n    two()\n    return x"


@pytest.mark.parametrize(
    ("text", "node", "after", "expected"),
    [
        ("if x: y = 1", "y = 1", False, "if x:\n    new()\n    y = 1"),
        ("if x: y = 1", "y = 1", True, "if x:\n    y = 1\n    new()"),
        ("if x: y = 1; z = 2  # two", "z = 2", False, "if x:\n    y = 1\n    new()\n    z = 2  # two"),
        ("if x: y = 1; z = 2  # two", "z = 2", True, "if x:\n    y = 1\n    z = 2  # two\n    new()"),
        ("if x: y = 1; z = 2", "y = 1", True, "if x:\n    y = 1\n    new()\n    z = 2"),
        ("if x: pass\nelse: y = 1", "y = 1", False, "if x: pass\nelse:\n    new()\n    y = 1"),
        ("a = 1; y = 1;", "y = 1", False, "a = 1\nnew()\ny = 1;"),
        ("a = 1; y = 1;", "y = 1", True, "a = 1; y = 1;\nnew()"),
        ("a = 1; y = 1;", "a = 1", True, "a = 1\nnew()\ny = 1;"),
        ("try: y = 1\nfinally: pass", "y = 1", False, "try:\n    new()\n    y = 1\nfinally: pass"),
        ("try: pass\nexcept E: y = 1", "y = 1", False, "try: pass\nexcept E:\n    new()\n    y = 1"),
        ("match x:\n    case 1: y = 1", "y = 1", False, "match x:\n    case 1:\n        new()\n        y = 1"),
        ("for i in (\n  1,\n): y = 1", "y = 1", False, "for i in (\n  1,\n):\n    new()\n    y = 1"),
        (
            "with a as b:\n    y = 1\n\nc = 2",
            "with a as b:\n    y = 1",
            True,
            "with a as b:\n    y = 1\nnew()\n\nc = 2",
        ),
        ("@d\ndef f(): pass", "def f(): pass", False, "new()\n@d\ndef f(): pass"),
        ('y = """\na"""', 'y = """\na"""', True, 'y = """\na"""\nnew()'),
    ],
)
def test_insertions_beside_other_statements_of_a_line(
    tmp_path: Path, text: str, node: str, after: bool, expected: str
) -> None:
    recovered = read("def forward(self, x):\n" + _indent(text))
    edits = Edits(recovered)
    insert = edits.insert_after if after else edits.insert_before
    wanted = _indent(node).strip()
    insert(
        next(n for n in ast.walk(recovered.tree) if isinstance(n, ast.stmt) and recovered.segment(n) == wanted), "new()"
    )
    assert edits.apply() == "def forward(self, x):\n" + _indent(expected)


def _indent(text: str) -> str:
    from hfspeed.source.layout import indented

    return indented(text, "    ")


@pytest.mark.parametrize(
    ("expression", "node", "new", "expected"),
    [
        ("a * b", "b", "x + y", "a * (x + y)"),
        ("a * b", "b", "f(x + y)", "a * f(x + y)"),
        ("a * (b)", "b", "x + y", "a * (x + y)"),
        ("-a", "a", "x + y", "-(x + y)"),
        ("f(a)", "a", "x + y", "f(x + y)"),
        ("f(a)", "a", "x, y", "f((x, y))"),
        ("f(a)", "a", "(x, y)", "f((x, y))"),
        ("f(*a)", "a", "x or y", "f(*(x or y))"),
        ("a.b", "a", "1", "(1).b"),
        ("a.b", "a", "x + y", "(x + y).b"),
        ("a(1)", "a", "lambda: 1", "(lambda: 1)(1)"),
        ("a[b]", "b", "x + y", "a[x + y]"),
        ("a", "a", "x, y", "x, y"),
        ("a", "a", "x\n+ y", "(x\n+ y)"),
        ("a", "a", "f(\n    x)", "f(\n    x)"),
        ("[a for a in b]", "b", "x if y else z", "[a for a in (x if y else z)]"),
        ("a + b", "a", "(x) + (y)", "((x) + (y)) + b"),
        ("f(k=a)", "a", "x := 1", "f(k=(x := 1))"),
    ],
)
def test_parentheses_where_meaning_asks_for_them(expression: str, node: str, new: str, expected: str) -> None:
    recovered = read(f"def forward(self):\n    return {expression}")
    edits = Edits(recovered)
    edits.replace(next(n for n in ast.walk(recovered.tree.body[0]) if isinstance(n, ast.Name) and n.id == node), new)
    assert edits.apply() == f"def forward(self):\n    return {expected}"


def test_overlap_and_broken_results_are_told() -> None:
    recovered = read("def forward(self, x):\n    return self.a(self.b(x))")
    edits = Edits(recovered)
    edits.replace(find(recovered, "self.a(self.b(x))"), "y")
    edits.replace(find(recovered, "self.b(x)"), "z")
    with pytest.raises(ValueError, match=r"edits overlap at a\.py:2"):
        edits.apply()
    edits = Edits(recovered)
    edits.replace(find(recovered, "self.b(x)"), "for")
    with pytest.raises(ValueError, match=r"M\.forward does not parse"):
        edits.apply()
    fstring = read('def forward(self, x):\n    return f"{x}"')
    name = next(n for n in ast.walk(fstring.tree) if isinstance(n, ast.Name))
    with pytest.raises(ValueError, match="f-string"):
        Edits(fstring).replace(name, "y")


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(self)", "(self, new: int | None = None)"),
        ("(self, x, y=1)", "(self, x, y=1, new: int | None = None)"),
        ("(self, x, y=(1), )", "(self, x, y=(1), new: int | None = None, )"),
        ("(self, x, /)", "(self, x, /, new: int | None = None)"),
        ("(self, x, *, y)", "(self, x, *, y, new: int | None = None)"),
        ("(self, *args, **kwargs)", "(self, *args, new: int | None = None, **kwargs)"),
        (
            "(\n    self,\n    x=1,  # one\n    **kwargs: Any,  # rest\n)",
            "(\n    self,\n    x=1,  # one\n    new: int | None = None,\n    **kwargs: Any,  # rest\n)",
        ),
        ("(\n    self,\n    x=1,  # one\n)", "(\n    self,\n    x=1,\n    new: int | None = None,  # one\n)"),
        ("(\n    self, x, **kwargs\n)", "(\n    self, x, new: int | None = None, **kwargs\n)"),
    ],
)
def test_a_new_parameter(signature: str, expected: str) -> None:
    edits = Edits(read(f"@d(1, (2))\ndef forward{signature}:\n    return 1"))
    edits.insert_parameter("new", "int | None", "None")
    assert edits.apply() == f"@d(1, (2))\ndef forward{expected}:\n    return 1"


def test_a_parameter_that_cannot_be() -> None:
    edits = Edits(read("def forward(self, x=1): pass"))
    with pytest.raises(ValueError, match="already has a parameter `x`"):
        edits.insert_parameter("x")
    with pytest.raises(ValueError, match="follows defaults"):
        edits.insert_parameter("y")
    edits.insert_parameter("y", default="2")
    with pytest.raises(ValueError, match="twice"):
        edits.insert_parameter("y", default="2")
    assert edits.apply() == "def forward(self, x=1, y=2): pass"


def test_nothing_stands_beside_an_elif() -> None:
    recovered = read("def forward(self, x):\n    if x:\n        pass\n    elif y:\n        z = 1")
    edits = Edits(recovered)
    branch = recovered.statement_of(find(recovered, "y"))
    for ask in (
        lambda: edits.insert_before(branch, "a"),
        lambda: edits.insert_after(branch, "a"),
        lambda: edits.delete(branch),
    ):
        with pytest.raises(ValueError, match=r"beside an `elif`: a\.py:4:5"):
            ask()


def test_inert_decorators_go_with_their_comments(tmp_path: Path) -> None:
    module = author(
        tmp_path,
        """
        def documents(f): return f
        class M:
            @documents  # told
            # told more
            def forward(self, x):
                return x
        """,
    )
    assert Edits(recover(module.M)).apply() == "def forward(self, x):\n    return x"


def test_erasing_takes_the_comment_and_the_doubled_blank_line_along() -> None:
    recovered = recover(_Erased)
    edits = Edits(recovered)
    body = recovered.tree.body
    for stmt in body[1:3]:
        edits.erase(stmt)
    assert edits.apply() == "def forward(self, x):\n    y = x + 1  # kept\n\n    # last\n    return y"


class _Erased:
    def forward(self, x):
        y = x + 1  # kept

        # what is not needed
        z = y * 2
        z = z + 1  # as this

        # last
        return y


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("f()", "f(a=a)"),
        ("f(x)", "f(x, a=a)"),
        ("f(x, *y, **z)", "f(x, *y, **z, a=a)"),
        ("f((x),)", "f((x),a=a)"),
        ("f(\n        x,  # one, two\n    )", "f(\n        x,  # one, two\n    a=a)"),
        ("f(\n        x  # one, two\n    )", "f(\n        x  # one, two\n    , a=a)"),
    ],
)
def test_an_argument_comes_last(tmp_path: Path, call: str, wanted: str) -> None:
    recovered = forward(tmp_path, f"def forward(self, f, x, y, z, a):\n    return {call}\n")
    edits = Edits(recovered)
    found = next(node for node in ast.walk(recovered.tree) if isinstance(node, ast.Call))
    edits.append_argument(found, "a=a")
    assert f"return {wanted}" in edits.apply()


def test_what_is_inserted_before_an_erased_statement_stays() -> None:
    """The comment above it goes, and what is inserted stands where the statement stood."""

    class Looped:
        def forward(self, x):
            first = x + 1
            # one after the other
            # and once more
            for one in range(3):
                first = first + one
            return first

    recovered = recover(Looped)
    edits = Edits(recovered)
    loop = recovered.tree.body[1]
    edits.insert_before(loop, "first = first + 3")
    edits.erase(loop)
    assert dedent(edits.apply()) == dedent("""
        def forward(self, x):
            first = x + 1
            first = first + 3
            return first
    """)
    edits.insert_before(statement(recovered, "first = first + one"), "first = 0")
    with pytest.raises(ValueError, match="overlap"):
        edits.apply()
