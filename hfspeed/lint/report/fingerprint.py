"""What makes a finding the same one after lines have moved."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from hfspeed.lint.finding import Finding
from hfspeed.lint.shown import forget, line


def relative(file: str) -> str:
    """A path as services want it: from the current folder where it lies below it, with slashes."""
    path = Path(file)
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


def fingerprints(findings: Sequence[Finding]) -> list[str]:
    """One per finding: of rule, file, message and the line's text, and of which one it is among equals."""
    forget()
    seen: dict[str, int] = {}
    found = []
    for finding in findings:
        written = line(finding.place.file, finding.place.line).strip()
        said = "\0".join((finding.code, relative(finding.place.file), finding.message, written))
        seen[said] = seen.get(said, 0) + 1
        found.append(sha256(f"{said}\0{seen[said]}".encode()).hexdigest()[:32])
    return found
