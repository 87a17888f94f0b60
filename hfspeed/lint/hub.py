"""Whether a folder is one that is loaded from the Hub with its own code."""

from __future__ import annotations

import json
from pathlib import Path


def is_hub_folder(folder: Path) -> bool:
    """Whether ``folder`` brings its own code: it has a config.json with an ``auto_map``."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("auto_map"))
