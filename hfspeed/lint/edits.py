"""Edits of texts by line and column, applied together or not at all."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from hfspeed.lint.disk import Disk
from hfspeed.lint.finding import Edit, Finding


def compatible(findings: Iterable[Finding]) -> list[Finding]:
    """The findings whose edits can be made at once, in order of preference; what overlaps waits for the next round."""
    taken: list[Finding] = []
    edits: set[Edit] = set()
    for finding in findings:
        if finding.edits and not _overlap(edits | set(finding.edits)):
            taken.append(finding)
            edits |= set(finding.edits)
    return taken


def apply(disk: Disk, findings: Iterable[Finding]) -> dict[Path, str]:
    """The new texts of every file that the edits of ``findings`` touch; the same edit is made once."""
    by_file: dict[Path, set[Edit]] = {}
    for edit in (edit for finding in findings for edit in finding.edits):
        by_file.setdefault(Path(edit.place.file), set()).add(edit)
    return {
        path: edited(disk.text(path) if disk.exists(path) else "", edits) for path, edits in sorted(by_file.items())
    }


def edited(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with every edit made, from the last to the first."""
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    for edit in sorted(edits, key=_key, reverse=True):
        start, end = _key(edit)
        text = text[: starts[start[0] - 1] + start[1] - 1] + edit.text + text[starts[end[0] - 1] + end[1] - 1 :]
    return text


def parses(path: Path, text: str) -> bool:
    """Whether ``text`` is still what the name of its file says."""
    try:
        if path.suffix == ".json":
            json.loads(text)
        else:
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _overlap(edits: Iterable[Edit]) -> bool:
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.place.file, []).append(edit)
    return any(
        _key(second)[0] < _key(first)[1] or _key(second)[0] == _key(first)[0]
        for listed in by_file.values()
        for first, second in pairwise(sorted(listed, key=_key))
    )


def _key(edit: Edit) -> tuple[tuple[int, int], tuple[int, int]]:
    place = edit.place
    start = place.line, place.column
    return start, (place.end_line or place.line, place.end_column or place.column)
