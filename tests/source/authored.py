"""Author's files for the tests of `hfspeed.source` and `hfspeed.emit`: written to disk, then imported by name."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from hfspeed.source import Recovered, recover

_numbers = itertools.count()


def author(folder: Path, text: str, *, name: str = "", raw: bool = False) -> ModuleType:
    """Write ``text`` as a module of its own and import it."""
    name = name or f"authored_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_bytes((text if raw else textwrap.dedent(text)).encode())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def forward(folder: Path, body: str) -> Recovered:
    """A recovered ``forward`` of a class ``M``, given its ``def`` from column 0."""
    return recover(author(folder, "class M:\n" + textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")).M)


def read(text: str) -> Recovered:
    """A ``forward`` that lies in no file."""
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Recovered(text, tree, "a.py", 1, 0, "a", "M", "self", "a")
