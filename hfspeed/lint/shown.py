"""Lines of files as they are shown beside a finding."""

from __future__ import annotations

import linecache


def line(file: str, number: int) -> str:
    """The line of a file without its end; empty where the file cannot be read, or not in the encoding it declares."""
    try:
        return linecache.getline(file, number).rstrip("\n")
    except (LookupError, ValueError):  # an encoding that is none for texts, or one that its bytes are not in
        return ""


def forget() -> None:
    """Read files again that have changed since they were read."""
    linecache.checkcache()


def remember(file: str, text: str) -> None:
    """Show lines of ``text`` for ``file``, whatever lies on disk."""
    lines = [f"{one}\n" for one in text.split("\n")]
    linecache.cache[file] = (len(text), None, lines, file)
