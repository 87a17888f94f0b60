"""Where the zoo's checkpoints come from: a folder of them, a writer beside the repository, or this repository's own."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WRITER = ROOT.parent / "shared" / "zoo"


def families(folder: Path | None, written: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Checkpoint and dtype of each wanted family; one that could not be written has an outcome already.

    Args:
        folder: checkpoints that are there.
        written: where else they are written, once.
        names: families and ``@group``.
    """
    known = json.loads((WRITER / "families.json").read_text("utf-8")) if (WRITER / "families.json").exists() else {}
    wanted = _wanted(names, known)
    if folder is not None:
        there = sorted(one.parent.name for one in folder.glob("*/expected.json"))
        chosen = [name for name in wanted or there if name in there]
        return {name: _one(folder / name, known.get(name, {})) for name in chosen}
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found: dict[str, dict[str, Any]] = {}
    for name in wanted or list(known or MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if name not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            continue
        try:
            if not (written / name / "expected.json").exists():
                _write(written, name)
            found[name] = _one(written / name, known.get(name, {}))
        except Exception as error:  # noqa: BLE001  one broken family must not stop the others
            found[name] = {"outcome": "FAILED", "why": f"not written: {type(error).__name__}: {error}", "seconds": 0}
    return found


def _wanted(names: list[str], known: dict[str, Any]) -> list[str]:
    groups = {name[1:] for name in names if name.startswith("@")}
    inside = [name for name, entry in known.items() if entry["group"] in groups]
    return [*inside, *(name for name in names if not name.startswith("@"))]


def _one(folder: Path, entry: dict[str, Any]) -> dict[str, Any]:
    return {"folder": str(folder), "dtype": entry.get("dtype", "float32")}


def _write(folder: Path, name: str) -> None:
    """A checkpoint with what its author's code answers; encoders are written as the decoders that they can be."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    writer = _writer()
    if writer is None:
        import families as own

        own.write(folder / name, name)
        return
    if getattr(CONFIG_MAPPING[name](), "is_decoder", None) is False:
        writer.OVERRIDES[name] = {**writer.OVERRIDES.get(name, {}), "is_decoder": True}
    architecture = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[name]
    writer.write(folder, name, architecture if isinstance(architecture, str) else architecture[0])


def _writer() -> ModuleType | None:
    if "zoo" in sys.modules or not (WRITER / "zoo.py").exists():
        return sys.modules.get("zoo")
    spec = importlib.util.spec_from_file_location("zoo", WRITER / "zoo.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["zoo"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["zoo"])
    return sys.modules["zoo"]
