"""One run of the linter: which files are read, which models are planned, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hfspeed.errors import UsageError
from hfspeed.lint.deep import Limits, deep
from hfspeed.lint.engine import check, choose, files_in, read
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding
from hfspeed.lint.hub import is_hub_folder
from hfspeed.lint.ignores import ignores
from hfspeed.lint.rule import Rule


@dataclass(frozen=True)
class Request:
    """What is to be checked.

    Attributes:
        subjects: files, folders, or names of models.
        select: codes, beginnings of codes or names of the rules to run; none is all.
        ignore: the same, of the rules to leave out.
        planned: whether models are also planned, which runs their code.
        trust_remote_code: whether that may be code from a folder that brings its own.
        limits: how long and with how much memory.
    """

    subjects: tuple[str, ...]
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    planned: bool = False
    trust_remote_code: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Outcome:
    """What was found, in order, and what the user should know besides."""

    findings: list[Finding]
    notes: list[str]


def run(request: Request) -> Outcome:
    """Check every subject; each file is read once, each model planned once.

    Raises:
        UsageError: a path does not exist, or a rule is not known.
    """
    chosen = choose(request.select, request.ignore)
    found: list[Finding] = []
    notes: list[str] = []
    for subject in dict.fromkeys(request.subjects):
        if _is_model(subject):
            found += _of_model(subject, request, chosen)
        else:
            found += _of_files(files_in(Path(subject)), request, chosen, notes)
    codes = {rule.code for rule in chosen}
    kept = {finding for finding in found if finding.code in codes}
    return Outcome(sorted(kept, key=lambda finding: finding.order), list(dict.fromkeys(notes)))


def _of_files(files: Iterable[Path], request: Request, chosen: list[Rule], notes: list[str]) -> list[Finding]:
    found = []
    for file in files:
        facts = read(file)
        read_there = check(facts, chosen)
        found += read_there
        if isinstance(facts, Finding) or not request.planned or not facts.causal:
            continue
        if is_hub_folder(file.parent) and not request.trust_remote_code:
            notes.append(f"{file.parent} brings its own code, so it was only read; --trust-remote-code plans it too")
            continue
        found += _news(_planned(str(file), request)[1], read_there)
    return found


def _of_model(name: str, request: Request, chosen: list[Rule]) -> list[Finding]:
    if not request.planned:
        raise UsageError(f"{name} does not exist here; a model by its name can only be planned, not read with --static")
    file, found = _planned(name, request)
    read_there = check(read(file), chosen) if file else []
    return read_there + _news(found, read_there)


def _news(planned: list[Finding], read_there: list[Finding]) -> list[Finding]:
    """What the planner adds: a rule that was found by reading a file is not told again of the same file."""
    known = {(finding.code, finding.place.file) for finding in read_there}
    return [finding for finding in planned if (finding.code, finding.place.file) not in known]


def _planned(model: str, request: Request) -> tuple[Path | None, list[Finding]]:
    """The planner's findings, without what the author has silenced where it is told."""
    file, found = deep(model, trust_remote_code=request.trust_remote_code, limits=request.limits)
    files = {finding.place.file for finding in found}
    facts = {name: read(Path(name)) for name in files if Path(name).is_file()}
    silenced = {name: ignores(one.text) for name, one in facts.items() if isinstance(one, Facts)}
    return file, [one for one in found if one.place.file not in silenced or not silenced[one.place.file].silence(one)]


def _is_model(subject: str) -> bool:
    """Whether ``subject`` is the name of a model rather than a path: nothing of that name lies here."""
    return not Path(subject).exists() and not subject.endswith(".py") and not subject.startswith((".", "/", "~"))
