"""Indentation of source text that leaves the inside of string literals alone."""

from __future__ import annotations

import io
import tokenize

_OPENS = {"FSTRING_START", "TSTRING_START"}
_CLOSES = {"FSTRING_END", "TSTRING_END"}


def inside_strings(text: str) -> frozenset[int]:
    """The lines of ``text`` (from 1) that begin inside a string literal, so must keep every column."""
    inside: set[int] = set()
    opened: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind in _OPENS:
            opened.append(token.start[0])
        elif kind in _CLOSES:
            inside.update(range(opened.pop() + 1, token.end[0] + 1))
        elif kind == "STRING":
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    return frozenset(inside)


def dedented(text: str, columns: int) -> tuple[str, tuple[int, ...]]:
    """``text`` with up to ``columns`` of white space taken from each line, and how much each line lost.

    The first line must be the one that sets the indentation.
    """
    kept = inside_strings(text)
    lines: list[str] = []
    removed: list[int] = []
    for number, line in enumerate(text.split("\n"), start=1):
        white = len(line) - len(line.lstrip(" \t\f"))
        taken = 0 if number in kept else min(columns, white)
        lines.append(line[taken:])
        removed.append(taken)
    return "\n".join(lines), tuple(removed)


def indented(text: str, prefix: str) -> str:
    """``text`` with ``prefix`` before each line that has content and is not inside a string literal."""
    kept = inside_strings(text)
    lines = text.split("\n")
    return "\n".join(
        line if number in kept or not line.strip() else prefix + line for number, line in enumerate(lines, start=1)
    )
