"""``hfspeed emit``: the modeling code that hfspeed runs, for reading, for a diff, or to keep in a repository."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hfspeed.errors import UsageError

if TYPE_CHECKING:
    from hfspeed.plan import Plan


def emit(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A local folder or the name of a model.")],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the module into this folder.")
    ] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show how each forward differs from its author's.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file in DIR is not up to date.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Write the modeling code that hfspeed runs: subclasses of the author's classes.

    Without -o or --diff the module is printed.
    """
    if check and folder is None:
        raise UsageError("--check compares with a file; say where it lies with -o DIR")
    if check and diff:
        raise UsageError("--check and --diff are two requests; give one of them")
    plan = _planned(model, trust_remote_code)
    name, text = _module(plan)
    shown = "".join(changes(plan)) if diff else text
    if folder is not None and check:
        _compare(folder / name, text, model)
    elif folder is not None:
        _write(folder / name, text)
    if diff or folder is None:
        sys.stdout.write(shown)


def changes(plan: Plan) -> Iterator[str]:
    """Each rewritten forward against the one its author wrote, as unified diffs."""
    from hfspeed.emit.origin import author_of
    from hfspeed.source import recover

    for forward in plan.forwards:
        author = recover(author_of(forward))
        yield from unified_diff(
            _lines(author.text),
            _lines(forward.text),
            f"{author.file}:{author.line} {forward.base}.forward",
            f"{forward.name}.forward",
        )


def _lines(text: str) -> list[str]:
    return (text.strip("\n") + "\n").splitlines(keepends=True)


def _planned(model: str, trust_remote_code: bool) -> Plan:
    from hfspeed.planner.load import load
    from hfspeed.planner.serve import planned

    return planned(load(model, trust_remote_code=trust_remote_code))[0]


def _module(plan: Plan) -> tuple[str, str]:
    from hfspeed.emit import render, stem

    return f"{stem(plan)}.py", render(plan)


def _compare(path: Path, text: str, model: str) -> None:
    try:
        found = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError):
        found = ""
    if found == text:
        print(f"{path} is up to date")
        return
    told = "does not exist" if found is None else "is not what hfspeed would emit"
    print(f"{path} {told}; write it with: hfspeed emit {model} -o {path.parent}", file=sys.stderr)
    raise typer.Exit(1)


def _write(path: Path, text: str) -> None:
    from hfspeed.emit.cache import replace

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}; give another folder with -o") from error
    print(path)
