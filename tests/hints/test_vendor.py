"""The vendored file is the package's own source, stands alone, and is never written over someone's work."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import hfspeed
from hfspeed.errors import UsageError
from hfspeed.hints import read
from hfspeed.hints.vendor import HINTS, NAME, vendor, vendored


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("vendored_hints", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["vendored_hints"] = module
    spec.loader.exec_module(module)
    return module


def test_it_holds_every_public_hint() -> None:
    assert set(HINTS) == set(hfspeed.__all__)


def test_it_imports_the_standard_library_only() -> None:
    for node in ast.walk(ast.parse(vendored())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= sys.stdlib_module_names
        if isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] in sys.stdlib_module_names


def test_every_definition_is_the_packages_own() -> None:
    folder = Path(hfspeed.__file__).parent / "hints"
    text = vendored()
    for name in ("hint", *HINTS):
        source = (folder / f"{name}.py").read_text("utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert ast.get_source_segment(source, node) in text


def test_the_planner_reads_hints_from_it(tmp_path: Path) -> None:
    hints: Any = loaded(vendor(tmp_path))

    @hints.norm
    @hints.attention(query="q_proj")
    class Block:
        pass

    assert [(hint.kind, hint.names) for hint in read(Block)] == [("attention", (("query", "q_proj"),)), ("norm", ())]
    assert all(hint.file == __file__ for hint in read(Block))
    with pytest.raises(TypeError):
        hints.norm("Block")


def test_it_stands_alone_as_a_package_member(tmp_path: Path) -> None:
    vendor(tmp_path)
    (tmp_path / "__init__.py").touch()
    (tmp_path / "modeling_x.py").write_text(
        f"from .{Path(NAME).stem} import decoder_layers\n\n@decoder_layers('layers')\nclass M: pass\n"
        "print(M.__hfspeed__[0].line)\n"
    )
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path.parent)!r})
import {tmp_path.name}.modeling_x
assert "hfspeed" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("3\n", "")


def test_a_second_run_touches_nothing(tmp_path: Path) -> None:
    path = vendor(tmp_path)
    before = path.stat().st_mtime_ns, path.stat().st_ino
    assert vendor(tmp_path) == path
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == before
    assert [entry.name for entry in tmp_path.iterdir()] == [NAME]


def test_an_older_copy_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfspeed.hints.vendor.HINTS", ("norm",))
    older = vendor(tmp_path).read_text()
    monkeypatch.undo()
    assert vendor(tmp_path).read_text() == vendored() != older


@pytest.mark.parametrize("present", ["print('mine')\n", "", vendored() + "EDITED = 1\n", "\xff"])
def test_a_foreign_or_edited_file_is_left_alone(tmp_path: Path, present: str) -> None:
    (tmp_path / NAME).write_bytes(present.encode("latin-1"))
    with pytest.raises(UsageError, match="not written by hfspeed or was edited"):
        vendor(tmp_path)
    assert (tmp_path / NAME).read_bytes() == present.encode("latin-1")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        vendor(tmp_path / "nowhere")
