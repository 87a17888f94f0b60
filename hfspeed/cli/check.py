"""``hfspeed check``: the linter over files, folders and models."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer
from rich.console import Console

from hfspeed.errors import UsageError
from hfspeed.lint.deep import Limits
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.report import FORMATS
from hfspeed.lint.run import Request, run

CODES = typer.Option(metavar="CODES", help="Codes, beginnings of codes, or names; separated by commas.")


def check(
    subjects: Annotated[list[str], typer.Argument(metavar="PATH|MODEL...", help="Files, folders or a model's name.")],
    static: Annotated[bool, typer.Option("--static", help="Read only; import and run nothing.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code from folders that bring their own.")
    ] = False,
    output_format: Annotated[str, typer.Option(metavar="FORMAT", help=", ".join(FORMATS))] = "full",
    select: Annotated[list[str] | None, CODES] = None,
    ignore: Annotated[list[str] | None, CODES] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 although there are findings.")] = False,
    time_limit: Annotated[float, typer.Option(help="Seconds for the deep check of one model.")] = Limits.seconds,
    memory_limit: Annotated[float, typer.Option(help="GiB for it; 0 is none.")] = Limits.memory,
) -> None:
    """Tell what keeps a modeling file from being served fast, or at all, and at which line.

    Files are read. Where torch and transformers are installed, models are also planned, in a process of its own,
    without weights.
    """
    if output_format not in FORMATS:
        raise UsageError(f"there is no format {output_format!r}; choose one of {', '.join(FORMATS)}")
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    request = Request(
        subjects=tuple(subjects),
        select=_listed(select),
        ignore=_listed(ignore),
        planned=not static and not missing,
        trust_remote_code=trust_remote_code,
        limits=Limits(time_limit, memory_limit),
    )
    if missing and not static:
        _note(f'only read, not planned: {" and ".join(missing)} not installed; run: pip install "hfspeed[torch]"')
    outcome = run(request)
    for note in outcome.notes:
        _note(note)
    _print(outcome.findings, output_format)
    failing = any(finding.severity is not Severity.INFO for finding in outcome.findings)
    raise typer.Exit(1 if failing and not exit_zero else 0)


def _listed(given: list[str] | None) -> tuple[str, ...]:
    return tuple(code.strip() for one in given or () for code in one.split(",") if code.strip())


def _print(findings: list[Finding], output_format: str) -> None:
    text = FORMATS[output_format](findings)
    if text.plain:
        Console(soft_wrap=True, highlight=False, emoji=False, markup=False).print(text)
    if output_format in ("full", "concise"):
        _note(_summary(findings))


def _summary(findings: list[Finding]) -> str:
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    plurals = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "infos"}
    told = [f"{count} {severity if count == 1 else plurals[severity]}" for severity, count in counts.items() if count]
    return ", ".join(told) or "nothing found"


def _note(text: str) -> None:
    print(f"hfspeed: {text}", file=sys.stderr)
