"""The flags of ``hfspeed check``: what each is called and says of itself, and the settings they amount to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from hfspeed.lint.config import parsed_pairs
from hfspeed.lint.finding import Severity
from hfspeed.lint.report import FORMATS

Listed = list[str] | None
LISTED = (
    *("select", "ignore", "extend_select", "extend_ignore"),
    *("fixable", "unfixable", "exclude", "extend_exclude", "target"),
)
SELECTION, FIXES, FILES, DEEP = "Rules", "Fixes", "Files and settings", "Deep check"


def _codes(text: str, panel: str = SELECTION) -> Any:
    return typer.Option(metavar="CODES", help=text, rich_help_panel=panel)


def _switch(flag: str, text: str, panel: str) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel)


def _file(text: str, *names: str) -> Any:
    return typer.Option(*names, metavar="FILE", help=text, rich_help_panel=FILES)


Subjects = Annotated[list[str], typer.Argument(metavar="PATH|MODEL|-...", help="Files, folders, a model's name, or -.")]
Static = Annotated[bool, _switch("--static", "Read only; import and run nothing.", DEEP)]
Trust = Annotated[bool, _switch("--trust-remote-code", "Run code from folders that bring their own.", DEEP)]
Seconds = Annotated[float, typer.Option(help="Seconds for the deep check of one model.", rich_help_panel=DEEP)]
Memory = Annotated[float, typer.Option(help="GiB for it; 0 is none.", rich_help_panel=DEEP)]

Select = Annotated[Listed, _codes("Codes, beginnings of codes, or names, with commas between; ALL is all.")]
Ignore = Annotated[Listed, _codes("Rules to leave out.")]
ExtendSelect = Annotated[Listed, _codes("Rules beside those that the settings select.")]
ExtendIgnore = Annotated[Listed, _codes("Rules to leave out beside those of the settings.")]
PerFile = Annotated[
    Listed, typer.Option(metavar="PATTERN:CODE", help="Rules to leave out in some files.", rich_help_panel=SELECTION)
]
IgnoreNoqa = Annotated[bool, _switch("--ignore-noqa", "Tell what comments silence, too.", SELECTION)]
AddNoqa = Annotated[bool, _switch("--add-noqa", "Silence everything found with comments.", SELECTION)]

FixFlag = Annotated[bool, _switch("--fix", "Mend what can be mended without changing a number.", FIXES)]
Unsafe = Annotated[
    bool | None,
    typer.Option("--unsafe-fixes/--no-unsafe-fixes", help="Mend what should be looked at, too.", rich_help_panel=FIXES),
]
Diff = Annotated[bool, _switch("--diff", "Show what --fix would change, and write nothing.", FIXES)]
FixOnly = Annotated[bool, _switch("--fix-only", "Mend, and tell nothing of the rest.", FIXES)]
ShowFixes = Annotated[bool, _switch("--show-fixes", "List what was mended.", FIXES)]
NonZero = Annotated[bool, _switch("--exit-non-zero-on-fix", "Exit with 1 when something was mended.", FIXES)]
Fixable = Annotated[Listed, _codes("Rules whose fixes may be made.", FIXES)]
Unfixable = Annotated[Listed, _codes("Rules whose fixes may not.", FIXES)]

Format = Annotated[str | None, typer.Option(metavar="FORMAT", help=", ".join(FORMATS))]
OutputFile = Annotated[Path | None, _file("Write the findings there.", "--output-file", "-o")]
Statistics = Annotated[bool, typer.Option("--statistics", help="Count findings by rule instead.")]
ExitZero = Annotated[bool, typer.Option("--exit-zero", help="Exit with 0 although there are findings.")]
FailOn = Annotated[
    str | None, typer.Option(metavar="SEVERITY", help=f"Exit with 1 from here on: {', '.join(Severity)}.")
]
Patterns = Annotated[Listed, typer.Option(metavar="PATTERN", help="What to leave out.", rich_help_panel=FILES)]
ForceExclude = Annotated[bool, _switch("--force-exclude", "Leave that out even where it is named.", FILES)]
Gitignore = Annotated[
    bool | None,
    typer.Option("--respect-gitignore/--no-respect-gitignore", help="Heed .gitignore.", rich_help_panel=FILES),
]
StdinName = Annotated[str, _file("The name of the file that - stands for.", "--stdin-filename")]
Config = Annotated[
    Listed,
    typer.Option(
        metavar="FILE|KEY=VALUE", help="Settings instead of the nearest ones, or one of them.", rich_help_panel=FILES
    ),
]
Preview = Annotated[
    bool | None,
    typer.Option("--preview/--no-preview", help="Run rules that may still change.", rich_help_panel=SELECTION),
]
Target = Annotated[
    Listed,
    typer.Option(metavar="PACKAGE==VERSION", help="What the model is for; else the newest.", rich_help_panel=SELECTION),
]
Isolated = Annotated[bool, _switch("--isolated", "Read no settings.", FILES)]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Keep nothing.", envvar="HFSPEED_NO_CACHE", rich_help_panel=FILES)
]
CacheDir = Annotated[str | None, typer.Option(metavar="DIR", help="Where to keep results.", rich_help_panel=FILES)]


@dataclass(frozen=True)
class Flags:
    """What was said on the command line; the fields are the parameters of the command."""

    subjects: list[str]
    static: bool
    trust_remote_code: bool
    time_limit: float
    memory_limit: float
    select: Listed
    ignore: Listed
    extend_select: Listed
    extend_ignore: Listed
    per_file_ignores: Listed
    ignore_noqa: bool
    add_noqa: bool
    fix: bool
    unsafe_fixes: bool | None
    diff: bool
    fix_only: bool
    show_fixes: bool
    exit_non_zero_on_fix: bool
    fixable: Listed
    unfixable: Listed
    output_format: str | None
    output_file: Path | None
    statistics: bool
    exit_zero: bool
    fail_on: str | None
    exclude: Listed
    extend_exclude: Listed
    force_exclude: bool
    respect_gitignore: bool | None
    stdin_filename: str
    config: Listed
    preview: bool | None
    target: Listed
    isolated: bool
    no_cache: bool
    cache_dir: str | None

    def settings(self) -> dict[str, Any]:
        """The settings among the flags, by key; only those that were given."""
        given: dict[str, Any] = {name: _split(getattr(self, name)) for name in LISTED}
        given["per_file_ignores"] = parsed_pairs(_split(self.per_file_ignores) or ()) or None
        for name in ("unsafe_fixes", "output_format", "fail_on", "respect_gitignore", "cache_dir", "preview"):
            given[name] = getattr(self, name)
        given |= {name: True for name in ("static", "force_exclude") if getattr(self, name)}
        return {name.replace("_", "-"): value for name, value in given.items() if value is not None}


def _split(given: Listed) -> tuple[str, ...] | None:
    return None if given is None else tuple(code.strip() for one in given for code in one.split(",") if code.strip())
