"""Silences every finding there is with a comment at its line, so that only new ones are told from then on."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import read
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.ignores import directives


def add_noqa(findings: Iterable[Finding], disk: Disk) -> list[Finding]:
    """Write ``# noqa`` comments over ``disk``; the findings for which there is no place."""
    left = []
    for finding in findings:
        path = Path(finding.place.file)
        facts = read(path, disk) if path.suffix == ".py" and disk.exists(path) and disk.mendable(path) else None
        if not isinstance(facts, Facts):
            left.append(finding)
            continue
        text = facts.text
        silenced = next((new for new in _attempts(text, finding) if _means_the_same(text, new, finding)), None)
        if silenced is None:
            left.append(finding)
        else:
            disk.changed[path] = silenced
    return left


def _attempts(text: str, finding: Finding) -> Iterable[str]:
    """The text with a comment on the first line of what was found, then on its last."""
    for number in dict.fromkeys((finding.place.line, finding.place.end_line or finding.place.line)):
        lines = text.split("\n")
        if number > len(lines):
            continue
        line = lines[number - 1]
        said = [one for one in directives(text) if one.line == number and one.kind == "noqa" and "*" not in one.codes]
        if said:
            listed = ", ".join([*said[0].codes, finding.code])
            line = f"{line[: said[0].column - 1]}# noqa: {listed}{line[said[0].end_column - 1 :]}"
        else:
            line = f"{line.rstrip()}  # noqa: {finding.code}"
        yield "\n".join([*lines[: number - 1], line, *lines[number:]])


def _means_the_same(old: str, new: str, finding: Finding) -> bool:
    """Whether ``new`` is the same program and silences; in a string or behind a backslash there is no comment."""
    try:
        same = ast.dump(ast.parse(old)) == ast.dump(ast.parse(new))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return same and any(one.silences(finding) for one in directives(new))
