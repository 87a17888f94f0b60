"""``hfspeed emit``: what it writes, shows and compares, and how it exits."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hfspeed.cli.app import main
from hfspeed.emit import render
from hfspeed.plan import Forward, Plan, Wrapper
from hfspeed.source import recover

AUTHOR = """\
class M:
    def forward(self, x):
        a = x + 1
        return a
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with one rewritten forward; loading and deciding are stood in for."""
    (tmp_path / "authored_for_cli.py").write_text(AUTHOR)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("authored_for_cli", None)
    text = "def forward(self, x):\n    return self.plus(x)"
    forwards = (Forward("M", "authored_for_cli", "M", text, ("x + 1 -> plus",), (), ()),)
    made = Plan("TinyForCausalLM", "authored_for_cli", 8, (), (), (), forwards, Wrapper("model", (), "h"), None, False)
    load = SimpleNamespace(load=lambda name, trust_remote_code=False: (name, trust_remote_code))
    monkeypatch.setitem(sys.modules, "hfspeed.planner", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "hfspeed.planner.load", load)
    monkeypatch.setitem(sys.modules, "hfspeed.planner.serve", SimpleNamespace(planned=lambda subject: (made, None)))
    return made


def outcome(*arguments: Any) -> int:
    with pytest.raises(SystemExit) as left:
        main(["emit", *map(str, arguments)])
    return left.value.code if isinstance(left.value.code, int) else 0


def test_print(plan: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("some/model") == 0
    assert capsys.readouterr().out == render(plan)


def test_write_and_check(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "folder"
    file = folder / "tiny_for_causal_lm.py"
    assert outcome("some/model", "-o", folder, "--check") == 1
    assert not folder.exists()
    assert f"hfspeed emit some/model -o {folder}" in capsys.readouterr().err
    assert outcome("some/model", "-o", folder) == 0
    assert capsys.readouterr().out == f"{file}\n"
    assert file.read_text() == render(plan)
    assert [path.name for path in folder.iterdir()] == [file.name]
    assert outcome("some/model", "-o", folder, "--check") == 0
    file.write_text(render(plan) + "# changed\n")
    assert outcome("some/model", "-o", folder, "--check") == 1
    assert file.read_text().endswith("# changed\n")
    file.write_bytes(b"\xff")
    assert outcome("some/model", "-o", folder, "--check") == 1


def test_diff(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("some/model", "--diff") == 0
    shown = capsys.readouterr().out
    import authored_for_cli

    assert shown == (
        f"--- {recover(authored_for_cli.M).file}:2 M.forward\n+++ M.forward\n@@ -1,3 +1,2 @@\n"
        " def forward(self, x):\n-    a = x + 1\n-    return a\n+    return self.plus(x)\n"
    )


def test_wrong_requests(plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert outcome("some/model", "--check") == 2
    assert "say where it lies with -o DIR" in capsys.readouterr().err
    assert outcome("some/model", "--check", "--diff", "-o", tmp_path) == 2
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    assert outcome("some/model", "-o", blocked) == 2
    assert f"cannot write {blocked}" in capsys.readouterr().err
    assert blocked.read_text() == ""
