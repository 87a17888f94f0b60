"""Makes the edits that findings bring, again and again until there are none; what no longer parses is taken back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hfspeed.lint.disk import Disk
from hfspeed.lint.edits import apply, compatible, parses
from hfspeed.lint.engine import check, read
from hfspeed.lint.finding import Finding
from hfspeed.lint.settings import Settings

ROUNDS = 50


@dataclass(frozen=True)
class Mended:
    """What was mended in one file, and what went wrong on the way; nothing has been written yet."""

    findings: tuple[Finding, ...]
    defect: str = ""


def mend(file: Path, disk: Disk, settings: Settings) -> Mended:
    """Mend ``file``, and what lies beside it where a fix says so; ``disk`` has the new texts."""
    before = dict(disk.changed)
    seen: set[str] = set()
    done: list[Finding] = []
    taken: list[Finding] = []
    for _ in range(ROUNDS):
        found = check(read(file, disk), settings.rules_for(file))
        taken = compatible(one for one in found if settings.mends(one) and _possible(disk, one))
        texts = apply(disk, taken)
        if not taken:
            return Mended(tuple(done))
        state = repr(sorted(texts.items()))
        if state in seen or not all(parses(path, text) for path, text in texts.items()):
            break
        seen.add(state)
        disk.changed.update(texts)
        done += taken
    disk.changed.clear()
    disk.changed.update(before)
    codes = ", ".join(sorted({one.code for one in taken}))
    return Mended((), f"{file}: what should mend {codes} did not come out right and was taken back; report it")


def _possible(disk: Disk, finding: Finding) -> bool:
    return all(disk.mendable(Path(edit.place.file)) for edit in finding.edits)


def differences(disk: Disk) -> Iterable[str]:
    """What was changed, as a unified diff."""
    from difflib import unified_diff

    for path, text in sorted(disk.changed.items()):
        old = disk.before(path)
        lines = (old.splitlines(keepends=True), text.splitlines(keepends=True))
        for line in unified_diff(*lines, str(path) if path.exists() else "/dev/null", str(path)):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
