"""Attention that no paged kernel computes, as its authors wrote it: indexers, masks and biases of their own."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

OURS = "hfspeed.vllm.models"
FAMILIES = [
    "inkling_text",  # a bias for each distance, and windows that masks say; short convolutions inside and around
    "hy_v4",  # an indexer, of which every second layer takes what the one before it chose; latents, and experts
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES)
def test_exact(serving: ModuleType, tmp_path: Path, family: str) -> None:
    """In float32, as eager transformers answers."""
    importlib.import_module("families").write(tmp_path, family)
    answer = serving.serve(tmp_path)
    assert "error" not in answer, answer.get("trace") or answer["error"]
    assert all(name.startswith(OURS) for name in answer["served"])
    assert answer["tokens"]
    assert answer["apart"] < serving.TOLERANCE
