"""Tests that import vLLM: its settings come first, and its checkpoints are written once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder imports vLLM."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vllm)


def sibling(name: str) -> ModuleType:
    """A module of this folder, under its own name, so that spawned workers and pickles find it too."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """How to serve, with vLLM's caches in a folder of this run."""
    sys.path.insert(0, str(HERE))
    module = sibling("serving")
    module.settle(tmp_path_factory.mktemp("vllm"))
    return module


@pytest.fixture(scope="session")
def scheduled() -> ModuleType:
    """What vLLM tells layers about one step."""
    return sibling("scheduled")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny checkpoint by name, written on first use."""
    folder = tmp_path_factory.mktemp("checkpoints")
    module: Any = sibling("checkpoints")

    def one(name: str) -> Path:
        if not (folder / name / "expected.json").exists():
            module.write(folder / name, name)
        return folder / name

    return one
