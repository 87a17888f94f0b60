"""One run of the linter: which files are read and mended, which models are planned, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from hfspeed.errors import UsageError
from hfspeed.lint.cache import Cache
from hfspeed.lint.config import Configuration
from hfspeed.lint.deep import Limits, Planned, deep
from hfspeed.lint.discover import files_in
from hfspeed.lint.disk import Disk
from hfspeed.lint.engine import Scan, read, scan, told
from hfspeed.lint.finding import Finding, Fix
from hfspeed.lint.mend import mend
from hfspeed.lint.scans import scans
from hfspeed.lint.settings import Settings
from hfspeed.lint.settled import settled
from hfspeed.lint.shown import remember

STDIN = "-"


@dataclass(frozen=True)
class Request:
    """What is to be checked.

    Attributes:
        subjects: files, folders, names of models, or ``-`` for ``stdin``.
        configuration: where the settings come from.
        planned: whether models are also planned, which runs their code.
        trust_remote_code: whether that may be code from a folder that brings its own.
        limits: how long and with how much memory.
        fix: whether fixes are made, over the outcome's disk.
        write: whether they are written before anything is planned.
        heed_ignores: whether comments silence.
        cached: whether results are kept and looked up.
        stdin: the text that ``-`` stands for.
        stdin_filename: the name it goes by.
    """

    subjects: tuple[str, ...]
    configuration: Configuration = field(default_factory=Configuration)
    planned: bool = False
    trust_remote_code: bool = False
    limits: Limits = field(default_factory=Limits)
    fix: bool = False
    write: bool = False
    heed_ignores: bool = True
    cached: bool = False
    stdin: str | None = None
    stdin_filename: str = STDIN


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was found, in order, and what the user should know besides.

    Attributes:
        findings: what is left, fixes made.
        notes: for people.
        files: every file that was read.
        disk: has the texts that fixes changed and nobody has written.
        mended: what the fixes were for.
        defects: fixes that had to be taken back.
    """

    findings: list[Finding]
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    disk: Disk = field(default_factory=Disk)
    mended: list[Finding] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)


def run(request: Request) -> Outcome:
    """Check every subject; each file is read once, each model planned once.

    Raises:
        UsageError: a path does not exist, or a setting is not known.
    """
    outcome = Outcome([])
    subjects = list(dict.fromkeys(request.subjects))
    by_path = {one: _files(one, request, outcome) for one in subjects if not _is_model(one)}
    files = list(dict.fromkeys(file for listed in by_path.values() for file in listed))
    models = [one for one in subjects if _is_model(one) or (not by_path[one] and (Path(one) / "config.json").is_file())]
    cache = Cache(_cache_folder(request.configuration) if request.cached else None)
    if request.fix:
        _mend(files, request, outcome, cache)
    found: list[Finding] = []
    for file, scanned in scans(files, outcome.disk, cache).items():
        found += _of_file(file, scanned, request, outcome)
    for name in models:
        found += _of_model(name, request, cache, outcome)
    outcome.findings.extend(sorted(set(found), key=lambda finding: finding.order))
    outcome.files.extend(map(str, files))
    return outcome


def _files(subject: str, request: Request, outcome: Outcome) -> list[Path]:
    if subject != STDIN:
        return files_in(Path(subject), request.configuration)
    file = Path(request.stdin_filename)
    text = (request.stdin or "").replace("\r\n", "\n").replace("\r", "\n")
    outcome.disk.changed[file] = text
    remember(str(file), text)
    return [file]


def _mend(files: list[Path], request: Request, outcome: Outcome, cache: Cache) -> None:
    """Make the fixes of every file that has some, and write them."""
    risky: dict[Path, Planned] = {}
    for file, scanned in scans(files, outcome.disk, cache).items():
        settings = request.configuration.of(file)
        if any(one.edits and settings.mends(one) for one in told(scanned, str(file), settings.rules_for(file))):
            mended = mend(file, outcome.disk, settings)
            outcome.mended.extend(mended.findings)
            outcome.defects.extend([mended.defect] if mended.defect else [])
            unsafe = any(one.fix is Fix.UNSAFE for one in mended.findings)
            if unsafe and request.write and _runs(scanned, request, settings):
                risky[file] = _planned(str(file), request)
    if request.write and request.stdin is None:
        before = {file: outcome.disk.before(file) for file in risky}
        outcome.disk.write()
        outcome.disk.changed.clear()
        for file, planned in risky.items():
            if planned.served and not (now := _planned(str(file), request)).served:
                _take_back(file, before[file], now, request, outcome)


def _take_back(file: Path, text: str, refused: Planned, request: Request, outcome: Outcome) -> None:
    """Write ``file`` as it was, with its safe fixes alone: with the others it was refused, and without them not."""
    outcome.disk.changed[file] = text
    mended = mend(file, outcome.disk, replace(request.configuration.of(file), unsafe_fixes=False))
    outcome.disk.write()
    outcome.disk.changed.clear()
    outcome.mended[:] = [one for one in outcome.mended if one.place.file != str(file)] + [*mended.findings]
    why = refused.findings[0].message if refused.findings else "no plan could be made"
    outcome.notes.append(f"{file}: unsafe fixes were taken back, because with them it cannot be served: {why}")


def _runs(scanned: Scan, request: Request, settings: Settings) -> bool:
    """Whether the model of a file is planned, which runs its code."""
    return request.planned and not settings.static and scanned.causal and (request.trust_remote_code or not scanned.hub)


def _of_file(file: Path, scanned: Scan, request: Request, outcome: Outcome) -> Iterator[Finding]:
    settings = request.configuration.of(file)
    planned = None
    if _runs(scanned, request, settings) and not outcome.disk.changed:
        scanned, planned = settled(_planned(str(file), request), scanned, file)
    elif _runs(scanned, replace(request, trust_remote_code=True), settings) and not outcome.disk.changed:
        outcome.notes.append(f"{file.parent} brings its own code: only read; --trust-remote-code plans it too")
    yield from told(_heeded(scanned, request), str(file), settings.rules_for(file), planned)


def _of_model(name: str, request: Request, cache: Cache, outcome: Outcome) -> list[Finding]:
    if not request.planned and Path(name).is_dir():
        outcome.notes.append(f"{name} brings no code, so there is nothing to read; without --static it is planned")
        return []
    if not request.planned:
        raise UsageError(f"{name} does not exist here; a model by its name can only be planned, not read with --static")
    planned = _planned(name, request)
    file = planned.file
    chosen = request.configuration.of(file or Path.cwd()).rules_for(file or Path(name))
    if file is None or not file.is_file():
        codes = {rule.code for rule in chosen}
        return [finding for finding in planned.findings if finding.code in codes]
    scanned, found = settled(planned, scans([file], outcome.disk, cache)[file], file)
    return told(_heeded(scanned, request), str(file), chosen, found)


def _heeded(scanned: Scan, request: Request) -> Scan:
    return scanned if request.heed_ignores else replace(scanned, directives=())


def _planned(model: str, request: Request) -> Planned:
    """The planner's findings; where they are of another file than the model's, its comments are heard too."""
    planned = deep(model, trust_remote_code=request.trust_remote_code, limits=request.limits)
    others = {finding.place.file for finding in planned.findings} - {str(planned.file)}
    said = {name: scan(read(Path(name))).directives for name in others if Path(name).is_file()}
    heard = [one for one in planned.findings if not any(by.silences(one) for by in said.get(one.place.file, ()))]
    return replace(planned, findings=heard)


def _cache_folder(configuration: Configuration) -> Path:
    settings = configuration.of(Path.cwd())
    return settings.root / (settings.cache_dir or ".hfspeed_cache")


def _is_model(subject: str) -> bool:
    """Whether ``subject`` is the name of a model rather than a path: nothing of that name lies here."""
    path = subject == STDIN or Path(subject).exists() or subject.endswith(".py")
    return not path and not subject.startswith((".", "/", "~"))
