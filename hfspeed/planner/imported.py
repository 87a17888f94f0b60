"""Files that an author's modules import from outside their folder, and that no version number speaks for."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType

VERSIONED = ("site-packages", "dist-packages")
"""Folders in which distributions are installed, which hardly anybody edits; those in use are told by their versions."""


def imported(names: Iterable[str]) -> tuple[set[Path], dict[str, str]]:
    """The files of modules that the modules called ``names`` import, and those import in turn, named ones included.

    A module that is Python's own is not followed, nor one that is installed: of those, versions are told by package.
    One that was imported by a computed name is found where its module, a function or a class of it stands in the
    importing module.
    """
    found: dict[str, Path] = {}
    installed: dict[str, str] = {}
    todo = [name for name in names if name in sys.modules]
    while todo:
        name = todo.pop()
        module = sys.modules[name]
        if name in found:
            continue
        if (file := _own_file(module)) is None:
            top = name.partition(".")[0]
            installed[top] = installed.get(top) or _version(top)
            continue
        found[name] = file
        todo += [other for other in _used(module, file) if other in sys.modules]
        todo += [name[:at] for at, letter in enumerate(name) if letter == "." and name[:at] in sys.modules]
    return set(found.values()), installed


@cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules[package], "__version__", ""))


def _own_file(module: ModuleType) -> Path | None:
    """Its source, if somebody writes it here; ``None`` for what is installed, built in or compiled."""
    path = getattr(module, "__file__", None)
    if not path or not path.endswith(".py") or not (file := Path(path)).is_file():
        return None
    parts = set(file.resolve().parts)
    if parts.intersection(VERSIONED) or file.resolve().is_relative_to(_standard()):
        return None
    return None if module.__name__.partition(".")[0] in {"hfspeed", "transformers", "torch"} else file


@cache
def _standard() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


def _used(module: ModuleType, file: Path) -> Iterator[str]:
    """Names of modules that ``module`` imports, wherever in its text, or that it holds something of."""
    package = module.__package__ or ""
    for node in ast.walk(_tree(file, file.stat().st_mtime_ns)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if node.level else []
            above = [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
            yield ".".join(above)
            yield from (".".join((*above, alias.name)) for alias in node.names)
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        if isinstance(name, str):
            yield name


@lru_cache(maxsize=256)
def _tree(file: Path, changed: int) -> ast.Module:  # noqa: ARG001  an edited file is another one
    try:
        return ast.parse(file.read_bytes())
    except SyntaxError:
        return ast.Module([], [])
