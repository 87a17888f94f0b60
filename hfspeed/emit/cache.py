"""Emitted modules on disk, named by their content, and imported by a real name."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import sys
import tempfile
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from platformdirs import user_cache_path

from hfspeed.emit.render import render
from hfspeed.errors import CacheError
from hfspeed.plan import Plan

PACKAGE = "hfspeed_emitted"
VARIABLE = "HFSPEED_CACHE_DIR"
_log = logging.getLogger(__name__)
_lock = threading.RLock()


def cache_root() -> Path:
    """The folder for everything hfspeed may make again: ``$HFSPEED_CACHE_DIR`` or the user's cache."""
    chosen = os.environ.get(VARIABLE, "").strip()
    return Path(chosen).expanduser() if chosen else user_cache_path("hfspeed", appauthor=False)


def digest(plan: Plan) -> str:
    """Sixteen hex digits that stand for the module's text."""
    return _digest(render(plan))


def stem(plan: Plan) -> str:
    """The architecture as a module name: ``tiny_for_causal_lm``."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plan.architecture)
    return re.sub(r"\W", "_", split).lower()


def emitted(plan: Plan, folder: Path | None = None) -> ModuleType:
    """The module with the plan's classes, written under ``folder`` (the cache) if it is not there yet.

    Its name is ``hfspeed_emitted.<stem>_<digest>``: tracebacks and `inspect` show its lines, and objects
    of its classes can be pickled. Several processes may ask at once.

    Raises:
        CacheError: the folder cannot be written.
    """
    text = render(plan)
    name = f"{stem(plan)}_{_digest(text)}"
    package = ensure_path(folder)
    path = package / f"{name}.py"
    with _lock:
        _written(path, text)
        return _loaded(f"{PACKAGE}.{name}", path)


def ensure_path(folder: Path | None = None) -> Path:
    """Let ``import hfspeed_emitted.…`` find the modules under ``folder``; needed before unpickling by name.

    Returns the package's folder, which may not exist yet.
    """
    package = (folder or cache_root()).absolute() / PACKAGE
    with _lock:
        module = sys.modules.get(PACKAGE)
        if module is None:
            spec = ModuleSpec(PACKAGE, None, is_package=True)
            module = sys.modules[PACKAGE] = importlib.util.module_from_spec(spec)
        if str(package) not in module.__path__:
            module.__path__.append(str(package))
    return package


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _written(path: Path, text: str) -> None:
    """Make sure that ``path`` holds exactly ``text``; readers never see half of it."""
    try:
        found = path.read_bytes() if path.exists() else None
        if found == text.encode():
            return
        if found is not None:
            _log.warning("%s is not what was written there; hfspeed writes it again", path)
            # Compiled code is trusted by time and size, which a damaged file may share with the right one.
            Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text)
    except OSError as error:
        raise CacheError(
            f"hfspeed cannot write emitted code to {path.parent}: {error.strerror or error}; "
            f"set {VARIABLE} to a folder that can be written"
        ) from error


def replace(path: Path, text: str) -> None:
    """Write ``path`` in one step: whoever reads it sees the old text or the new one."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _loaded(name: str, path: Path) -> ModuleType:
    """Import ``path`` as ``name``, from exactly that file whatever else is on the package's path."""
    known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    setattr(sys.modules[PACKAGE], name.rpartition(".")[2], module)
    return module
