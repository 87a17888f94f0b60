"""Who may import whom, and what importing costs; each claim is tried in a fresh interpreter."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "vllm", "numpy", "safetensors")
LIGHT = [
    "hfspeed",
    "hfspeed.cli.app",
    "hfspeed.cli.check",
    "hfspeed.cli.rule",
    "hfspeed.emit",
    "hfspeed.errors",
    "hfspeed.example",
    "hfspeed.hints",
    "hfspeed.lint",
    "hfspeed.plan",
    "hfspeed.refusal",
    "hfspeed.source",
    "hfspeed.vllm",
]
# Folders and files, from hfspeed/, that may import what is named.
ALLOWED = {
    "vllm": ("vllm/",),
    "transformers": (
        "vllm/",
        *(f"planner/{name}.py" for name in ("load", "shrink", "wrapper", "build", "checkpoint", "conversion")),
        "planner/spans.py",
        "planner/eager_reads.py",
        "planner/written.py",
    ),
}


def loaded(statement: str) -> list[str]:
    """The modules that ``statement`` brings into a new interpreter."""
    count = "print(__import__('json').dumps(sorted(set(sys.modules) - before)))"
    code = f"import sys; before = set(sys.modules)\n{statement}\n{count}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert done.returncode == 0, done.stderr
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_stay_light(module: str) -> None:
    heavy = [name for name in loaded(f"import {module}") if name.partition(".")[0] in HEAVY]
    assert not heavy


def test_the_hints_cost_next_to_nothing() -> None:
    """A modeling file imports hfspeed while it trains: a handful of modules, all of them ours or the library's."""
    names = loaded("import hfspeed")
    assert len([name for name in names if name.startswith("hfspeed")]) <= 12
    assert {name.partition(".")[0] for name in names} <= {"hfspeed", *sys.stdlib_module_names}
    assert len(names) <= 60


def test_the_command_line_starts_light() -> None:
    statement = "import hfspeed.cli.app as app\ntry: app.main(['--version'])\nexcept SystemExit: pass"
    assert not [name for name in loaded(statement) if name.partition(".")[0] in HEAVY]


@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_only_some_import_the_big_libraries(library: str) -> None:
    elsewhere = []
    for file in (ROOT / "hfspeed").rglob("*.py"):
        if file.relative_to(ROOT / "hfspeed").as_posix().startswith(ALLOWED[library]):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if library in {name.partition(".")[0] for name in names}:
                elsewhere.append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert not elsewhere


def test_the_layers_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]


def test_the_plugin_is_announced() -> None:
    from importlib.metadata import entry_points

    found = entry_points(group="vllm.general_plugins", name="hfspeed")
    assert [entry.value for entry in found] == ["hfspeed.vllm:register"]
