"""What statements may write, always on the careful side."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hfspeed.source import written


def names(text: str, scope: str | None = None) -> set[str]:
    body = ast.parse(textwrap.dedent(text)).body
    return written(body, ast.parse(textwrap.dedent(scope)).body + body if scope else None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("y = x + 1", "y"),
        ("a, (b, *c) = x", "a b c"),
        ("y: int = x", "y"),
        ("y = (z := x)", "y z"),
        ("x += 1", "x"),
        ("x[0] = y", "x"),
        ("x[i][j].k = y", "x"),
        ("x.k = y", "x x.k"),
        ("self.a.b = y", "self self.a self.a.b"),
        ("self.a[0] += y", "self self.a"),
        ("del x, y[0]", "x y"),
        ("for i, j in x: pass", "i j"),
        ("with f(x) as (a, b): pass", "a b"),
        ("try: pass\nexcept E as e: pass", "e"),
        ("import a.b, c as d\nfrom e import f", "a d f"),
        ("def g(): pass\nclass C: pass", "g C"),
        ("match x:\n  case {'a': b, **c}: pass\n  case [d, *e]: pass\n  case F() as f: pass", "b c d e f"),
        ("y = x.mul_(2)", "y x"),
        ("y = x.view(1)[0].mul_(2)", "y x"),
        ("y = torch.relu_(x)", "y x"),
        ("y = torch.add(a, b, out=x)", "y x"),
        ("y = F.relu(x, inplace=True)", "y x"),
        ("y = F.relu(x, inplace=False)", "y"),
        ("y = kwargs.pop('a')", "y kwargs"),
        ("y = cache.update(k, v)", "y cache"),
        ("torch.add(x, y)", "x y"),
        ("logger.warning('a')", "logger logger.warning"),
        ("y = x.__len__()", "y"),
        ("y = torch.add(a, b)", "y"),
        ("self.a = y", "self self.a"),
        ("y = [i for i in x]", "y i"),
        ("'a docstring'\nx\nreturn_ = x == y", "return_"),
    ],
)
def test_names_written(text: str, expected: str) -> None:
    assert names(text) == set(expected.split())


@pytest.mark.parametrize(
    "alias",
    [
        "y = x", "y = x.view(1)", "y = x.transpose(0, 1).contiguous()", "y = x[..., 0]", "y = x.T",
        "y, z = x.chunk(2)", "a, y = b, x", "y = torch.transpose(x, 0, 1)", "y = x if c else d", "y = c or x",
        "y = (w := x)", "y = [x, d]", "y = {'a': x}", "self.y = x\ny = self.y", "for y in x.unbind(0): pass",
        "for i, y in enumerate(x): pass", "y = x.to(torch.float32)", "w = x.view(2)\ny = w[0]",
        "y = F.dropout(x, p=0.0)", "y = x.view(self.n, -1)", "with x.detach() as y: pass", "y = x.mul_(2)", "*y, z = x",
    ],
)  # fmt: skip
def test_writing_to_what_may_share_memory_writes_to_both(alias: str) -> None:
    assert "x" in names("y[0] = 1", alias)
    assert "y" in names("x.add_(1)", alias)
    assert "x" in names(f"{alias}\ny += 1")


@pytest.mark.parametrize("fresh", ["y = x + 1", "y = self.q_proj(x)", "y = torch.cat([x, x])", "y = x.clone()"])
def test_new_values_are_not_aliases(fresh: str) -> None:
    assert "x" not in names("y += 1", fresh)


def test_storing_a_value_does_not_change_it() -> None:
    assert "h" not in names("self.seen = h", "h = h.view(-1, self.size)")
    assert "h" not in names("kept[0] = h")
    assert "h" in names("self.seen.add_(1)", "self.seen = h")


def test_binding_a_name_again_changes_no_other() -> None:
    assert names("h = f(h)", "residual = h") == {"h"}
