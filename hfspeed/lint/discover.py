"""Which files are looked at: what was named, and what lies below it but for what is left out or ignored by git."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pathspec import GitIgnoreSpec

from hfspeed.errors import UsageError
from hfspeed.lint.config import Configuration
from hfspeed.lint.settings import Settings

Specs = tuple[tuple[Path, GitIgnoreSpec], ...]


def files_in(path: Path, configuration: Configuration | None = None) -> list[Path]:
    """The Python files that ``path`` means: itself, or all below it that nothing leaves out, sorted.

    Raises:
        UsageError: there is no such path.
    """
    configuration = configuration or Configuration()
    if path.is_file():
        settings = configuration.of(path)
        return [] if settings.force_exclude and _forced(path, settings) else [path]
    if not path.is_dir():
        raise UsageError(f"{path} does not exist; name a file, a folder or a model")
    settings = configuration.of(path)
    left_out = _forced(path, settings)
    if settings.force_exclude and left_out:
        return []
    above = _above(path) if settings.respect_gitignore and not left_out else ()
    return sorted(_walk(path, configuration, above, path if left_out else None))


def _walk(folder: Path, configuration: Configuration, ignored: Specs, top: Path | None) -> Iterator[Path]:
    """All below ``folder``; patterns are told from ``top`` where that was named although a pattern leaves it out."""
    settings = configuration.of(folder)
    settings = replace(settings, root=top) if top is not None else settings
    ignored += _own(folder) if settings.respect_gitignore else ()
    for entry in folder.iterdir():
        whole = entry.is_dir()
        if settings.excluded(entry, folder=whole) or _ignored(entry, ignored, folder=whole):
            continue
        if whole and not entry.is_symlink() and not (entry / "pyvenv.cfg").exists():
            yield from _walk(entry, configuration, ignored, top)
        elif entry.suffix == ".py" and not entry.name.startswith(".") and entry.is_file():
            yield entry


def _forced(path: Path, settings: Settings) -> bool:
    """Whether ``path`` or a folder on the way to it is left out."""
    root, whole = settings.root.absolute(), path.absolute()
    between = [parent for parent in whole.parents if parent.is_relative_to(root) and parent != root]
    if any(settings.excluded(parent, folder=True) for parent in between):
        return True
    if settings.excluded(path, folder=path.is_dir()):
        return True
    return settings.respect_gitignore and _ignored(path, _above(path), folder=path.is_dir())


def _above(path: Path) -> Specs:
    """The .gitignore files from the repository that ``path`` lies in down to it, itself not included."""
    parents = list(path.absolute().parents)
    tops = [index for index, parent in enumerate(parents) if (parent / ".git").exists()]
    return tuple(spec for parent in reversed(parents[: tops[0] + 1] if tops else []) for spec in _own(parent))


def _own(folder: Path) -> Specs:
    file = folder / ".gitignore"
    try:
        lines = file.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return ((folder.absolute(), GitIgnoreSpec.from_lines(lines)),)


def _ignored(path: Path, specs: Specs, *, folder: bool) -> bool:
    """Whether git would ignore ``path``: of the files that say something of it, the nearest decides."""
    for top, spec in reversed(specs):
        told = path.absolute().relative_to(top).as_posix() + ("/" if folder else "")
        said = spec.check_file(told).include
        if said is not None:
            return said
    return False
