"""Named configurations: a model, or only its shape, with the load to put on it; one file each in ``presets/``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hfspeed.errors import UsageError

FOLDER = Path(__file__).with_name("presets")


@dataclass(frozen=True)
class Preset:
    """One of them.

    Attributes:
        name: what is typed in place of a model.
        about: one phrase for people.
        prompts / input_len / output_len: the load of one round.
        model: a name on the hub, if it is a published model.
        config: else a configuration; its weights are random.
        gpus: how many it needs.
        engine: vLLM's settings.
        restart: arms do not fit beside each other, so each starts anew for every round.
    """

    name: str
    about: str
    prompts: int
    input_len: int
    output_len: int
    model: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    gpus: int = 0
    engine: dict[str, Any] = field(default_factory=dict)
    restart: bool = False


def names() -> list[str]:
    """Every preset."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def preset(name: str) -> Preset | None:
    """The preset of that name, or ``None``."""
    file = FOLDER / f"{name}.json"
    if name not in names():
        return None
    return Preset(name, **json.loads(file.read_text("utf-8")))


def require_gpus(wanted: Preset) -> None:
    """Say so before anything starts, if the accelerators that a preset is about are not here.

    Raises:
        UsageError: there are fewer than it needs.
    """
    if not wanted.gpus:
        return
    found = gpus()
    if found < wanted.gpus:
        cpu = ", ".join(name for name in names() if name.startswith("cpu-"))
        raise UsageError(
            f"{wanted.name} ({wanted.about}) needs {wanted.gpus} GPU{'s' if wanted.gpus > 1 else ''}, and torch sees "
            f"{found} here; run it where they are, or take one of {cpu}"
        )


def gpus() -> int:
    """How many accelerators torch sees."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
