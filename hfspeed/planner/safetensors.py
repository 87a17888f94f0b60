"""What a folder of safetensors holds: names, shapes and kinds, read from the headers alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hfspeed.errors import CheckpointError

INDEX = "model.safetensors.index.json"
HEADER_LIMIT = 100_000_000
"""The format's own bound on the size of a header."""


@dataclass(frozen=True)
class Stored:
    """One tensor on disk.

    Attributes:
        name: as the checkpoint spells it.
        shape: its sizes.
        dtype: the format's name of its kind, e.g. ``"BF16"``.
        file: the file that holds it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: Path


def stored(folder: Path) -> dict[str, Stored]:
    """Every tensor of the checkpoint in ``folder``, by name, in file order.

    Raises:
        CheckpointError: no safetensors, a shard that is missing, cut off or broken, or a name held twice.
    """
    found: dict[str, Stored] = {}
    for file in _files(folder):
        for tensor in read_header(file):
            if tensor.name in found:
                raise CheckpointError(
                    f"{file}: {tensor.name} is also in {found[tensor.name].file.name}; remove the leftover"
                )
            found[tensor.name] = tensor
    for name, file_name in _index(folder).items():
        if name not in found:
            raise CheckpointError(
                f"{folder / INDEX}: {name} should be in {file_name}, but is not; download both files again"
            )
    return found


def read_header(file: Path) -> list[Stored]:
    """The tensors of one file, which has to be as long as its header promises."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, HEADER_LIMIT):
            raise CheckpointError(
                f"{file}: {size} bytes, too few for the header it announces; the file was cut off or is no "
                "safetensors file: download it again"
            )
        text = stream.read(length)
    try:
        header = json.loads(text)
        tensors = [_tensor(name, value, file) for name, value in header.items() if name != "__metadata__"]
        end = max((value["data_offsets"][1] for name, value in header.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(f"{file}: the header is not readable ({error}); download the file again") from error
    if size != 8 + length + end:
        raise CheckpointError(
            f"{file}: {size} bytes, but its header promises {8 + length + end}; the file was cut off or overwritten: "
            "download it again"
        )
    return tensors


def _tensor(name: str, value: dict[str, Any], file: Path) -> Stored:
    return Stored(name, tuple(int(entry) for entry in value["shape"]), str(value["dtype"]), file)


def _files(folder: Path) -> list[Path]:
    if index := _index(folder):
        files = [folder / name for name in sorted(set(index.values()))]
    else:
        # a second copy of the weights under its vendor's names lies beside the first in some repositories
        files = [file for file in sorted(folder.glob("*.safetensors")) if not file.name.startswith("consolidated")]
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{folder / INDEX} names {file.name}, which is not there; download it")
    if files:
        return files
    others = sorted(file.name for file in folder.glob("*.bin"))
    found = f"found {', '.join(others)}; save it once more with save_pretrained" if others else "download the weights"
    raise CheckpointError(f"{folder}: no safetensors files; {found}")


def _index(folder: Path) -> dict[str, str]:
    file = folder / INDEX
    if not file.is_file():
        return {}
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(value) for name, value in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{file}: no readable weight_map ({error!r}); download it again") from error
