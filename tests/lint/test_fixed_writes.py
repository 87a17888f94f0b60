"""A write between projections that was split computes what it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import check, parse
from hfspeed.lint.mend import mend
from hfspeed.lint.rules import find
from hfspeed.lint.settings import Settings

torch = pytest.importorskip("torch")
RULE = find("HFS206")
assert RULE is not None
WRITE = "x.mul_(scale)"
TEXT = RULE.bad.shown


def computed(text: str) -> Any:
    names: dict[str, Any] = {"nn": torch.nn, "torch": torch}
    exec(compile(text, "attention", "exec"), names)
    torch.manual_seed(0)
    attention = names["Attention"](8)
    with torch.no_grad():
        return attention(torch.randn(2, 3, 8), torch.tensor(0.3))


@pytest.mark.parametrize(
    ("write", "after"),
    [
        (WRITE, "x = x.mul(scale)"),
        ("x += scale", "x = x + scale"),
        ("x *= scale + 1  # louder", "x = x * (scale + 1)  # louder"),
        ("x **= 2", "x = x ** 2"),
        ("x.masked_fill_(x > 0.5, 0.0)", "x = x.masked_fill(x > 0.5, 0.0)"),
    ],
)
def test_what_was_split_computes_the_same(write: str, after: str, tmp_path: Path) -> None:
    text = TEXT.replace(WRITE, write)
    file = tmp_path / "modeling_x.py"
    file.write_text(text)
    disk = Disk()
    assert [one.code for one in mend(file, disk, Settings(unsafe_fixes=True)).findings] == ["HFS206"]
    assert disk.changed[file] == text.replace(write, after)
    assert all(torch.equal(old, new) for old, new in zip(computed(text), computed(disk.changed[file]), strict=True))


@pytest.mark.parametrize("write", ["y = x.mul(scale)", "x = x * scale", "x = x.clone()\n        x.mul_(scale)"])
def test_a_new_value_is_no_write(write: str) -> None:
    assert [one.code for one in check(parse(TEXT.replace(WRITE, write), Path("modeling_x.py")))] == []
