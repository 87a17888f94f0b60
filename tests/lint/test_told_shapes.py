"""Code shapes that users stumbled over, each a small model: the right rule at the right line, and mended well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
HERE = Path(__file__).resolve().parents[1] / "shapes"
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import asking  # noqa: E402
import every  # noqa: E402


def test_every_report_has_its_shapes() -> None:
    assert {name.split()[0].rstrip("abcdefghijkl") for name in every.SHAPES} == {str(n) for n in range(1, 11)}
    assert len(every.SHAPES) >= 70
    assert sum(shape.mended for shape in every.SHAPES.values()) >= 10


@pytest.mark.parametrize("name", every.SHAPES)
def test_told_and_mended(name: str, tmp_path: Path) -> None:
    assert asking.faults(tmp_path, every.SHAPES[name]) == []
