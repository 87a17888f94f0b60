"""Plans on disk, by a hash of everything that a plan depends on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import hfspeed
from hfspeed.errors import CacheError
from hfspeed.plan import Plan
from hfspeed.plan.json import dumps, loads
from hfspeed.planner.build import build
from hfspeed.planner.imported import imported
from hfspeed.planner.load import Subject
from hfspeed.planner.switches import switched_off

PASSING = ("_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype")
"""Entries of a configuration that say nothing about the model's shape."""
WEIGHTS, LARGE = (".safetensors", ".bin", ".pt", ".gguf"), 1 << 20
"""Endings of files that hold weights, and bytes from which on a file is none that code reads settings from."""


class PlanCache:
    """A folder of plans. An entry that cannot be read counts as absent, and is written anew.

    Args:
        root: the folder; made when the first plan is put.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str) -> Plan | None:
        """The plan of ``key``, or ``None``.

        Raises:
            CacheError: the folder is there but cannot be read.
        """
        try:
            stored = self.path(key).read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise self.unusable("read", error) from error
        digest, _, text = stored.partition("\n")
        if digest != _hash(text.encode()):
            return None
        try:
            return loads(text)
        except ValueError:
            return None

    def put(self, key: str, plan: Plan) -> Path:
        """Store ``plan``; a reader sees the old entry or the new one, never half of it, whoever else writes.

        Raises:
            CacheError: the folder cannot be made or written.
        """
        text = dumps(plan)
        path, made = self.path(key), ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, made = tempfile.mkstemp(prefix=f".{key[:12]}-", dir=path.parent)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(f"{_hash(text.encode())}\n{text}")
            Path(made).replace(path)
        except OSError as error:
            if made:
                Path(made).unlink(missing_ok=True)
            raise self.unusable("written", error) from error
        return path

    def path(self, key: str) -> Path:
        """Where the plan of ``key`` lies."""
        return self.root / f"{key}.json"

    def unusable(self, verb: str, error: OSError) -> CacheError:
        """The error that says which folder, why, and what to do."""
        return CacheError(
            f"the plan cache {self.root} cannot be {verb}: {error.strerror or error}; set HFSPEED_CACHE_DIR to a "
            "folder that you can write"
        )


def key_for(subject: Subject, built: Any = None) -> str:
    """A hash of configuration, author's code, hfspeed's own code, what is off, and the versions of libraries.

    ``built`` is the model on meta, where somebody has built it.
    """
    config = {name: value for name, value in subject.config.to_dict().items() if name not in PASSING}
    files, installed = code_of(subject, built)
    parts = {
        "class": f"{subject.model_class.__module__}.{subject.model_class.__qualname__}",
        # a refusal names the file, so the same code elsewhere is another plan
        "file": str(subject.file),
        "config": json.dumps(config, sort_keys=True, default=str),
        "code": {str(file): _hash(file.read_bytes()) for file in files},
        "hfspeed": own_code(),
        "off": switched_off(),
        "versions": installed | {name: importlib.metadata.version(name) for name in ("transformers", "torch")},
    }
    return _hash(json.dumps(parts, sort_keys=True).encode())


def code_of(subject: Subject, built: Any = None) -> tuple[list[Path], dict[str, str]]:
    """The files that a plan may hang on, and the versions of installed packages that they import.

    Those of every class in the model and of what they inherit, those beside the author's own file (its code may read
    others than Python's, too), and what all of these imported, unless an installed package with a version holds it.
    """
    model = built if built is not None else build(subject.model_class, subject.config)
    classes = {parent for cls in {type(module) for module in model.modules()} for parent in cls.__mro__}
    files = {Path(file) for file in map(_file_of, classes) if file}
    if not subject.model_class.__module__.startswith("transformers."):
        files |= set(subject.file.parent.glob("*.py"))
        files |= {file for file in _beside(subject.folder) if file.name != "config.json"}
    names = {cls.__module__ for cls in classes} | {subject.model_class.__module__, type(subject.config).__module__}
    own, installed = imported(names)
    return sorted(files | own), installed


def _beside(folder: Path | None) -> list[Path]:
    """Small files of a folder; weights are large, and no plan hangs on them."""
    every = folder.iterdir() if folder is not None else ()
    return [file for file in every if file.is_file() and file.suffix not in WEIGHTS and file.stat().st_size < LARGE]


def _file_of(cls: type[Any]) -> str | None:
    if cls.__module__.partition(".")[0] in ("builtins", "torch"):
        return None
    try:
        return inspect.getsourcefile(cls)
    except TypeError:
        return None


@cache
def own_code() -> str:
    """A hash of hfspeed itself: between two releases a version says nothing."""
    root = Path(inspect.getfile(hfspeed)).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
