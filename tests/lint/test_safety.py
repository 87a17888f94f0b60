"""Reading a file does nothing that the file wants, and no file, however broken, breaks the linter."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hfspeed.lint.disk import Disk
from hfspeed.lint.edits import edited
from hfspeed.lint.engine import parse, scan, told
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.mend import mend
from hfspeed.lint.report import FORMATS, report
from hfspeed.lint.rules import rules
from hfspeed.lint.settings import Settings

ROOT = Path(__file__).parents[2]
SEEDS = [rule.bad.text + rule.good.text for rule in rules()]
PIECES = [
    *("def forward(self, x, **kwargs):\n", "    ", "\n", "(", ")", "[", "{", "'''", '"', "\\\n", "\t", "\f", "\x00"),
    *("# noqa: HFS101\n", "# hfspeed: ignore[", "# hfspeed: disable\n", "class A(A):\n", "self", "lambda: ", "*", "**"),
    *("match x:\n    case _:\n        pass\n", "async ", "await ", "del x\n", "if True:\n", "\u2028", "\ud800"),
    *("\ufeff", "é", ":=", "#"),
]  # fmt: skip


def test_a_hostile_file_is_only_read(tmp_path: Path) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0.2)
        marker = tmp_path / "ran"
        text = f"""
import os, socket, sys
open({str(marker)!r}, "w").write("ran")
socket.create_connection(("127.0.0.1", {listening.getsockname()[1]}))
class Base:
    def __init_subclass__(cls):
        os._exit(7)
class ExampleForCausalLM(Base):
    def forward(self, x, past_key_values=None):
        print("ran", file=sys.stderr)
        return torch.softmax(x @ x, -1) @ x
sys.exit(5)
"""
        (tmp_path / "modeling_example.py").write_text(text)
        (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling_example.ExampleForCausalLM"}}')
        for name in ("conftest.py", "sitecustomize.py", "__init__.py", "torch.py", "hfspeed_hints.py"):
            (tmp_path / name).write_text(f"open({str(marker)!r}, 'w')\n")
        for flags in ([], ["--fix", "--unsafe-fixes"], ["--add-noqa"], ["--diff"]):
            run = subprocess.run(
                [sys.executable, "-m", "hfspeed", "check", "--static", *flags, str(tmp_path)],
                cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env={**os.environ},
            )  # fmt: skip
            assert run.returncode in (0, 1), run.stderr
            assert "ran\n" not in run.stderr
        assert not marker.exists()
        with pytest.raises(TimeoutError):
            listening.accept()


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """An example of a rule, with pieces cut, doubled, swapped and put in."""
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        piece = draw(st.sampled_from(PIECES) | st.text(max_size=3) | st.just(text[start:end] * 2))
        text = text[:start] + piece + text[end:]
    return text.replace("\r", "\n")  # as it is when it has been read


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=mutated())
def test_no_text_breaks_it(text: str, tmp_path: Path) -> None:
    """Read, told in every format, mended; places lie in the file, and what is mended still parses."""
    file = tmp_path / "modeling_example.py"
    facts = parse(text, file)
    found = told(scan(facts), str(file), rules())
    lines = text.split("\n")
    for one in found:
        place = one.place
        assert 1 <= place.line <= len(lines)
        if not isinstance(facts, Finding):
            assert (place.line, place.column) <= (place.end_line or place.line, place.end_column or place.column)
            assert (place.end_column or 1) <= len(lines[(place.end_line or place.line) - 1]) + 1
    for name in FORMATS:
        assert isinstance(report(name)(found, [str(file)]).plain, str)
    if isinstance(facts, Facts):
        disk = Disk({file: text})
        assert mend(file, disk, Settings(unsafe_fixes=True)).defect == ""
        assert not isinstance(parse(disk.changed[file], file), Finding)


@given(text=st.text(max_size=30), data=st.data())
def test_an_edit_changes_what_it_says_and_nothing_else(text: str, data: st.DataObject) -> None:
    from hfspeed.lint.finding import Edit
    from hfspeed.refusal import Place

    lines = text.split("\n")
    line = data.draw(st.integers(1, len(lines)))
    start = data.draw(st.integers(0, len(lines[line - 1])))
    end = data.draw(st.integers(start, len(lines[line - 1])))
    got = edited(text, [Edit(Place("m", line, start + 1, line, end + 1), "NEW")]).split("\n")
    assert got[line - 1] == lines[line - 1][:start] + "NEW" + lines[line - 1][end:]
    assert got[: line - 1] + got[line:] == lines[: line - 1] + lines[line:]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(content=mutated().map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=200))
def test_the_command_always_ends_with_0_1_or_2(content: bytes) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hfspeed", "check", "--static", "--fix", "--stdin-filename", "modeling_x.py", "-"],
        cwd=ROOT, input=content, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    assert run.returncode in (0, 1, 2)
    assert b"Traceback" not in run.stderr
