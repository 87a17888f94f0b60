"""Keeps what files were found to say, by their content; an entry that cannot be read is as if it were not there."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache as once
from hashlib import sha256
from pathlib import Path
from typing import Any

from hfspeed.lint.engine import Scan
from hfspeed.lint.finding import Edit, Finding, Fix, Severity
from hfspeed.lint.ignores import Directive
from hfspeed.refusal import Place

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by hfspeed check; may be deleted.\n"


@dataclass(frozen=True)
class Cache:
    """A folder of results; without one nothing is kept."""

    folder: Path | None

    def get(self, file: Path) -> Scan | None:
        """What is known of ``file`` as it is now."""
        if self.folder is None:
            return None
        try:
            entry = self._entry(self.folder, file)
            return _scan(json.loads(entry.read_text("utf-8")), file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def put(self, file: Path, scan: Scan) -> None:
        """Keep ``scan`` of ``file``, where the folder can be written."""
        if self.folder is None:
            return
        with suppress(OSError):
            entry = self._entry(self.folder, file)
            beside = entry.with_name(f"{entry.name}.{os.getpid()}")
            if not entry.parent.exists():
                _make(self.folder, entry.parent)
            beside.write_text(json.dumps(asdict(_nameless(scan, file))), "utf-8")
            beside.replace(entry)

    def _entry(self, folder: Path, file: Path) -> Path:
        """The entry's path: a digest of all that the rules may look at."""
        digest = sha256(f"{_state()}\0{file.name}\0".encode() + file.read_bytes())
        config = file.parent / "config.json"
        if config.is_file():
            digest.update(b"\0" + config.read_bytes() + b"\0".join(_beside(file.parent)))
        name = digest.hexdigest()
        return folder / name[:2] / name[2:40]


@once
def _state() -> str:
    """What the rules are: the files that they are made of, as they lie here."""
    sources = sorted(Path(__file__).parent.rglob("*.py"))
    stats = [(str(source), (stat := source.stat()).st_mtime_ns, stat.st_size) for source in sources]
    return repr((sys.version_info, stats))


def _beside(folder: Path) -> list[bytes]:
    """The other Python files of a folder, which an ``auto_map`` may name, with what would show a change."""
    files = sorted(folder.glob("*.py"))
    return [f"{file.name}{(stat := file.stat()).st_mtime_ns}{stat.st_size}".encode() for file in files]


def _make(folder: Path, shard: Path) -> None:
    shard.mkdir(parents=True, exist_ok=True)
    for name, text in (("CACHEDIR.TAG", TAG), (".gitignore", "*\n")):
        if not (folder / name).exists():
            (folder / name).write_text(text, "utf-8")


def _nameless(scan: Scan, file: Path) -> Scan:
    """The same, with places told from the file's folder, so that it holds wherever the folder lies."""
    moved = (_moved(one, lambda name: os.path.relpath(name, file.parent)) for one in scan.findings)
    return replace(scan, findings=tuple(moved))


def _moved(finding: Finding, rename: Any) -> Finding:
    edits = tuple(replace(edit, place=replace(edit.place, file=rename(edit.place.file))) for edit in finding.edits)
    return replace(finding, place=replace(finding.place, file=rename(finding.place.file)), edits=edits)


def _scan(raw: dict[str, Any], file: Path) -> Scan:
    findings = (_moved(_finding(one), lambda name: str(file.parent / name)) for one in raw["findings"])
    said = tuple(Directive(**{**one, "codes": tuple(one["codes"])}) for one in raw["directives"])
    return Scan(tuple(findings), said, bool(raw["causal"]), bool(raw["hub"]))


def _finding(raw: dict[str, Any]) -> Finding:
    edits = tuple(Edit(Place(**one["place"]), one["text"]) for one in raw["edits"])
    known = {"severity": Severity(raw["severity"]), "place": Place(**raw["place"]), "fix": Fix(raw["fix"])}
    return Finding(**{**raw, **known, "edits": edits})
