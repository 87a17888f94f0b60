"""Files as the linter sees them: as they lie on disk, with what a fix has changed laid over them."""

from __future__ import annotations

import io
import os
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from hfspeed.errors import UsageError


@dataclass(frozen=True, eq=False)
class Disk:
    """The files on disk, and over them the texts that were changed and not written yet."""

    changed: dict[Path, str] = field(default_factory=dict)

    def text(self, path: Path) -> str:
        """The text of a file, every line of it ended by a line feed.

        Raises:
            OSError: it is not there, or not a file.
            SyntaxError, LookupError: its encoding is declared, and unknown or none for texts.
            UnicodeError: it is not in its encoding.
        """
        if path in self.changed:
            return self.changed[path]
        return io.TextIOWrapper(io.BytesIO(path.read_bytes()), _encoding(path)).read()

    def before(self, path: Path) -> str:
        """The text as it lies on disk; that of a file which is not there is empty."""
        return Disk().text(path) if path.exists() else ""

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path in self.changed or path.is_file()

    def mendable(self, path: Path) -> bool:
        """Whether a changed text can be written back without touching other lines: all of them end alike."""
        if not path.exists():
            return True
        content = path.read_bytes()
        windows = content.count(b"\r\n")
        return content.count(b"\r") == windows and windows in (0, content.count(b"\n"))

    def write(self) -> list[Path]:
        """Write what was changed, each file whole or not at all; what was written.

        Raises:
            UsageError: a file cannot be written.
        """
        for path, text in self.changed.items():
            try:
                _replace(path, text)
            except OSError as error:
                raise UsageError(f"{path} cannot be written: {error}; it is as it was") from error
        return sorted(self.changed)


def _encoding(path: Path) -> str:
    if path.suffix != ".py" or not path.exists():
        return "utf-8"
    with path.open("rb") as stream:
        return tokenize.detect_encoding(stream.readline)[0]


def _replace(path: Path, text: str) -> None:
    encoding = _encoding(path)
    windows = path.exists() and b"\r\n" in path.read_bytes()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding=encoding, newline="\r\n" if windows else "\n") as stream:
            stream.write(text)
        if path.exists():
            beside.chmod(path.stat().st_mode & 0o7777)
        beside.replace(path.resolve())
    finally:
        beside.unlink(missing_ok=True)
