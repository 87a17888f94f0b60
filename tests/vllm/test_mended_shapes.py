"""Code shapes that users stumbled over, served as they are written and mended; ``make shapes`` serves all of them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).resolve().parents[1] / "shapes"
SAMPLE = (
    "1a by hand", "2b not given to attention", "4c a method", "8d corrected by a bias", "9g tied by a list",
    "10b a mixture of softmaxes", "10d a learned scale",
)  # fmt: skip


@pytest.mark.timeout(900)
def test_the_same_answers(serving: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    for name in ("asking", "every", "shape"):
        sys.modules.pop(name, None)
    import asking
    import every

    for name in SAMPLE:
        assert asking.faults(tmp_path / name.split()[0], every.SHAPES[name], serving) == [], name
