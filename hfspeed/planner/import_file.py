"""A modeling file on disk, imported so that its relative imports work and its errors are told."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from huggingface_hub.errors import StrictDataclassError

from hfspeed.errors import SubjectError, UsageError

AUTHOR_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    StrictDataclassError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What an author's code may raise at us; everything else is our own defect and is not caught."""

PACKAGE = "hfspeed_author"


def module_of(file: Path) -> ModuleType:
    """Import ``file``: by its real name when Python would find it, else as part of a package made of its folder.

    Importing runs the file. The package's name carries the files' digest, so an edited file is a new module.

    Raises:
        UsageError: the file cannot be a module (missing, or a name Python cannot import).
        SubjectError: it does not parse, or it raises while it is imported.
    """
    # not the file itself: in a Hub cache it is a link to a blob without a name
    file = file.parent.resolve() / file.name
    if not file.is_file():
        raise UsageError(f"{file} does not exist; expected a modeling file, a folder with config.json or a model type")
    _parse(file)
    name = _real_name(file) or _made_name(file)
    try:
        return importlib.import_module(name)
    except AUTHOR_ERRORS as error:
        raise SubjectError(
            f"{where(error, file.parent) or file}: the file cannot be imported: {told(error)}; {_remedy(error)}"
        ) from error


def where(error: BaseException, folder: Path) -> str | None:
    """``file:line`` of the innermost frame of ``error`` that lies in ``folder``."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def told(error: BaseException) -> str:
    """An error as one line: ``TypeError: what it says``."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _parse(file: Path) -> None:
    try:
        compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise SubjectError(f"{file}:{line}: the file does not parse: {told(error)}; mend this line first") from error


def _remedy(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith(PACKAGE):
        return f"install `{error.name}`, or put it beside the file and import it relatively"
    return "it must import on its own: try `python` on it first"


def _dotted(file: Path) -> tuple[Path, str]:
    """The folder that the outermost package of ``file`` lies in, and the dotted name from there."""
    parts, root = [file.stem], file.parent
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _real_name(file: Path) -> str | None:
    root, name = _dotted(file)
    if "." not in name or str(root) not in {str(Path(entry or ".").resolve()) for entry in sys.path}:
        return None
    spec = importlib.util.find_spec(name)
    same = spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file
    return name if same else None


def _made_name(file: Path) -> str:
    root, name = _dotted(file)
    if "." in file.stem:
        raise UsageError(f"{file} cannot be imported: a dot in the name; rename it to {file.stem.replace('.', '_')}.py")
    digest = hashlib.sha256()
    for source in sorted(file.parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    package = f"{PACKAGE}_{digest.hexdigest()[:12]}"
    known = sys.modules.get(package)
    if known is None or list(known.__path__) != [str(root)]:
        _forget(package)
        made = ModuleType(package, f"The folder {root}, as a package.")
        made.__path__ = [str(root)]
        sys.modules[package] = made
        importlib.invalidate_caches()
    return f"{package}.{name}"


def _forget(package: str) -> None:
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
