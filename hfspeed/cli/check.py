"""``hfspeed check``: the linter over files, folders and models."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from hfspeed.cli import check_flags as flag
from hfspeed.cli.check_flags import Flags
from hfspeed.errors import UsageError
from hfspeed.lint.config import Configuration, inline
from hfspeed.lint.deep import Limits
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.mend import differences
from hfspeed.lint.noqa import add_noqa
from hfspeed.lint.report import report
from hfspeed.lint.run import STDIN, Outcome, Request, run
from hfspeed.lint.settings import Settings

ORDER = (Severity.INFO, Severity.WARNING, Severity.ERROR)


def check(
    subjects: flag.Subjects,
    static: flag.Static = False,
    trust_remote_code: flag.Trust = False,
    time_limit: flag.Seconds = Limits.seconds,
    memory_limit: flag.Memory = Limits.memory,
    select: flag.Select = None,
    ignore: flag.Ignore = None,
    extend_select: flag.ExtendSelect = None,
    extend_ignore: flag.ExtendIgnore = None,
    per_file_ignores: flag.PerFile = None,
    ignore_noqa: flag.IgnoreNoqa = False,
    add_noqa: flag.AddNoqa = False,
    fix: flag.FixFlag = False,
    unsafe_fixes: flag.Unsafe = None,
    diff: flag.Diff = False,
    fix_only: flag.FixOnly = False,
    show_fixes: flag.ShowFixes = False,
    exit_non_zero_on_fix: flag.NonZero = False,
    fixable: flag.Fixable = None,
    unfixable: flag.Unfixable = None,
    output_format: flag.Format = None,
    output_file: flag.OutputFile = None,
    statistics: flag.Statistics = False,
    exit_zero: flag.ExitZero = False,
    fail_on: flag.FailOn = None,
    exclude: flag.Patterns = None,
    extend_exclude: flag.Patterns = None,
    force_exclude: flag.ForceExclude = False,
    respect_gitignore: flag.Gitignore = None,
    stdin_filename: flag.StdinName = STDIN,
    config: flag.Config = None,
    preview: flag.Preview = None,
    target: flag.Target = None,
    isolated: flag.Isolated = False,
    no_cache: flag.NoCache = False,
    cache_dir: flag.CacheDir = None,
) -> None:
    """Tell what keeps a modeling file from being served fast, or at all, and at which line.

    Files are read. Where torch and transformers are installed, models are also planned, in a process of its own,
    without weights.
    """
    raise typer.Exit(_carried_out(Flags(**locals())))


def _carried_out(flags: Flags) -> int:
    """Do what was asked; the exit code."""
    file, single = inline(flags.config or ())
    configuration = Configuration(flags.settings(), file, flags.isolated, single)
    settings = configuration.of(Path.cwd())
    for unheard in settings.unheard:
        _note(f"{unheard} may still change, so it is run only with --preview")
    outcome = run(_request(flags, configuration, settings))
    for note in outcome.notes:
        _note(note)
    for defect in outcome.defects:
        _note(defect)
    if flags.add_noqa:
        return _silenced(outcome)
    if flags.show_fixes:
        for one in outcome.mended:
            _note(f"mended {one.place}: {one.code} {one.message}")
    code = _shown(flags, settings, outcome)
    if outcome.defects:
        return 2
    if outcome.mended and flags.exit_non_zero_on_fix:
        return 1
    return 0 if flags.exit_zero and not flags.diff else code


def _request(flags: Flags, configuration: Configuration, settings: Settings) -> Request:
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    stdin = STDIN in flags.subjects
    if stdin and (len(flags.subjects) > 1 or flags.add_noqa):
        raise UsageError("- stands for one file on standard input and goes with nothing else, --add-noqa included")
    fix = flags.fix or flags.diff or flags.fix_only
    static = settings.static or stdin or flags.diff
    if missing and not static:
        _note(f'only read, not planned: {" and ".join(missing)} not installed; run: pip install "hfspeed[torch]"')
    return Request(
        subjects=tuple(flags.subjects),
        configuration=configuration,
        planned=not static and not missing,
        trust_remote_code=flags.trust_remote_code,
        limits=Limits(flags.time_limit, flags.memory_limit),
        fix=fix,
        write=fix and not flags.diff,
        heed_ignores=not flags.ignore_noqa,
        cached=not flags.no_cache,
        stdin=sys.stdin.buffer.read().decode("utf-8", errors="replace") if stdin else None,
        stdin_filename=flags.stdin_filename,
    )


def _shown(flags: Flags, settings: Settings, outcome: Outcome) -> int:
    """Print the result; whether there is something to fail for."""
    if flags.diff:
        told = "".join(differences(outcome.disk))
        sys.stdout.write(told)
        return 1 if told else 0
    mended = STDIN in flags.subjects and (flags.fix or flags.fix_only)
    if mended:  # the text is the result, and what is left to say goes beside it
        sys.stdout.write(outcome.disk.changed[Path(flags.stdin_filename)])
    if outcome.mended:
        _note(f"mended {len(outcome.mended)}")
    if flags.fix_only:
        return 0
    text = report("statistics" if flags.statistics else settings.output_format)(outcome.findings, outcome.files)
    _print(text, flags.output_file, beside=mended)
    if settings.output_format in ("full", "concise"):
        _note(_summary(outcome.findings))
    threshold = ORDER.index(settings.fail_on)
    return 1 if any(ORDER.index(finding.severity) >= threshold for finding in outcome.findings) else 0


def _print(text: Text, file: Path | None, *, beside: bool) -> None:
    if file is not None:
        try:
            file.write_text(f"{text.plain}\n" if text.plain else "", "utf-8")
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error}") from error
    elif text.plain:
        Console(stderr=beside, soft_wrap=True, highlight=False, emoji=False, markup=False).print(text)


def _silenced(outcome: Outcome) -> int:
    left = add_noqa(outcome.findings, outcome.disk)
    outcome.disk.write()
    _note(f"silenced {len(outcome.findings) - len(left)}")
    for finding in left:
        _note(f"{finding.place}: no place for a comment that silences {finding.code}")
    return 0


def _summary(findings: list[Finding]) -> str:
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    plurals = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}
    told = [f"{count} {severity if count == 1 else plurals[severity]}" for severity, count in counts.items() if count]
    return ", ".join(told) or "nothing found"


def _note(text: str) -> None:
    print(f"hfspeed: {text}", file=sys.stderr)
