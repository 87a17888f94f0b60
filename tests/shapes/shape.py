"""A code shape that users stumbled over: a small model with some of its text written in another way."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLAIN = Path(__file__).resolve().parents[2] / "examples" / "plain"
SMALL = {"width": 64, "inner": 96, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 32, "vocab_size": 250,
         "max_position_embeddings": 256, "epsilon": 0.02}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """What is written otherwise, and what has to be said of it.

    Attributes:
        changes: what stands in the place of some text; the text stands there once.
        told: code, severity, and what stands on the line, of every finding of a deep check.
        served: whether it can be served as it is written.
        mended: whether fixes leave nothing to find but what is only information.
        config: other sizes.
    """

    changes: dict[str, str] = field(default_factory=dict)
    told: tuple[tuple[str, str, str], ...] = ()
    served: bool = True
    mended: bool = False
    config: dict[str, Any] = field(default_factory=dict)


def write(folder: Path, shape: Shape) -> Path:
    """Write the folder of a shape, without weights; the modeling file."""
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "modeling_plain.py"
    text = file.read_text("utf-8")
    for old, new in shape.changes.items():
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    file.write_text(text, "utf-8")
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text("utf-8")), **SMALL, **shape.config}, indent=2), "utf-8")
    return file
