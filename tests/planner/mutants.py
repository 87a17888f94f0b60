"""The example without hints, small, with a few of its lines written otherwise."""

from __future__ import annotations

import json
from pathlib import Path

from hfspeed.planner.load import Subject, load

PLAIN = Path(__file__).resolve().parent.parent.parent / "examples" / "plain"
SIZES = {"vocab_size": 96, "width": 32, "inner": 48, "depth": 2, "heads": 4, "kv_heads": 2, "head_dim": 8}


def mutant(folder: Path, *changes: tuple[str, str], **sizes: int) -> Subject:
    """The subject in ``folder`` with ``changes`` made, each of a text that occurs exactly once."""
    for file in PLAIN.iterdir():
        if file.suffix in {".py", ".json"}:
            (folder / file.name).write_text(file.read_text("utf-8"), encoding="utf-8")
    code = (folder / "modeling_plain.py").read_text("utf-8")
    for old, new in changes:
        assert code.count(old) == 1, f"{code.count(old)} times in the example: {old}"
        code = code.replace(old, new)
    (folder / "modeling_plain.py").write_text(code, encoding="utf-8")
    config = folder / "config.json"
    text = config.read_text("utf-8")
    config.write_text(json.dumps(json.loads(text) | SIZES | sizes), encoding="utf-8")
    return load(str(folder), trust_remote_code=True)
