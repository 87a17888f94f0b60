"""Folders that are loaded from the Hub with their own code, as their config.json describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hfspeed.lint.disk import Disk


def is_hub_folder(folder: Path, disk: Disk | None = None) -> bool:
    """Whether ``folder`` brings its own code: it has a config.json with an ``auto_map``."""
    return bool(config_of(folder, disk or Disk()).get("auto_map"))


def config_of(folder: Path, disk: Disk) -> dict[str, Any]:
    """The config.json of ``folder``; empty where there is none that can be read."""
    if not disk.exists(folder / "config.json"):
        return {}
    try:
        config = json.loads(disk.text(folder / "config.json"))
    except (OSError, ValueError, RecursionError):
        return {}
    return config if isinstance(config, dict) else {}


def auto_map(folder: Path, disk: Disk) -> dict[str, str]:
    """The ``auto_map`` of ``folder``, as far as it is about files beside it: ``{"AutoModel": "file.Class"}``."""
    named = config_of(folder, disk).get("auto_map")
    entries = named.items() if isinstance(named, dict) else ()
    return {name: value for name, value in entries if isinstance(value, str) and "--" not in value}
