"""What a folder says of itself before anything is built from it: its configuration, and whether weights are whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hfspeed.errors import SubjectError, UsageError
from hfspeed.planner.safetensors import INDEX, stored

NAMED = "name a checkpoint folder, a modeling .py file or a model type"


def config_json(folder: Path) -> dict[str, Any]:
    """The values in ``config.json``.

    Raises:
        UsageError: there is none.
        SubjectError: it is not readable, or no object.
    """
    file = folder / "config.json"
    if not file.is_file():
        if any(folder.glob("*.safetensors")):
            raise UsageError(
                f"{folder} has weights, but no config.json, which says what they are weights of; download it as well"
            )
        raise UsageError(f"{folder} has no config.json; {NAMED}")
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise SubjectError(
            f"{file}: not readable as JSON: {type(error).__name__}: {error}; mend it or download it again"
        ) from error
    if not isinstance(values, dict):
        raise SubjectError(f"{file}: expected an object with model_type, found {type(values).__name__}")
    return values


def has_weights(folder: Path) -> bool:
    """Whether safetensors lie in ``folder``, or are said to."""
    return (folder / INDEX).is_file() or any(folder.glob("*.safetensors"))


def path_of(name: str) -> Path:
    """The path that a user typed, as far as it can be one.

    Raises:
        UsageError: no file can have such a name.
    """
    path = Path(name).expanduser()
    try:
        path.exists()
    except OSError as error:
        raise UsageError(f"{name[:40]}… cannot be a path: {error.strerror}; {NAMED}") from error
    return path


def no_file(name: str, path: Path) -> None:
    """Raise where ``path`` is a file, which is no model.

    Raises:
        UsageError: it is one.
    """
    if path.is_file():
        kind = "weights without a configuration" if path.suffix == ".safetensors" else "a file"
        raise UsageError(f"{name} is {kind}; {NAMED}")


def look(name: str, *, weights: bool = True) -> None:
    """Raise if ``name`` is something on this machine that cannot be served; a name of the Hub passes.

    Args:
        name: what the user typed.
        weights: whether weights that are there have to be whole.

    Raises:
        UsageError: it is no folder with a configuration.
        SubjectError: its configuration cannot be read.
        CheckpointError: its weights cannot.
    """
    path = path_of(name)
    no_file(name, path)
    if path.is_dir():
        config_json(path)
        if weights and has_weights(path):
            stored(path)
