"""``hfspeed report``: what was decided about a model, as a page for people or a picture for a README."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer

from hfspeed.cli.layout import possible
from hfspeed.errors import RefusedError, UsageError


def report(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A local folder or the name of a model.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write; by default it is printed.")
    ] = None,
    form: Annotated[
        Literal["html", "svg"] | None,
        typer.Option("--format", help="A page, or a picture for a README; by default as FILE is called, else a page."),
    ] = None,
    tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Show what each of N ranks holds.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, metavar="N", help="In N pipeline stages.")] = 1,
    ep: Annotated[int, typer.Option("--ep", min=1, metavar="N", help="With whole experts spread over N ranks.")] = 1,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="What it is served in; by default as vLLM would.")
    ] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Write one page about a model: its blocks, what was rewritten, what could be faster, who holds what, the proofs.

    The page needs no network and no other file. No weights are read. Of a model that is refused, the page says why.
    """
    if output is not None and not output.absolute().parent.is_dir():
        raise UsageError(f"-o {output}: the folder {output.absolute().parent} is not there; make it first")
    from rich.console import Console

    from hfspeed.plan.holdings import holdings
    from hfspeed.plan.places import Layout
    from hfspeed.plan.sizes import sizes
    from hfspeed.planner.load import load
    from hfspeed.planner.serve import planned
    from hfspeed.planner.sources import on_disk, quantised, sources
    from hfspeed.report.card import card
    from hfspeed.report.page import Subject, page, refused

    command, page_wanted = shlex.join(["hfspeed", *sys.argv[1:]]), form != "svg"
    with Console(stderr=True).status(f"planning {model}"):
        subject = load(model, trust_remote_code=trust_remote_code)
        on_disk(subject)  # broken files are told at once
        try:
            plan, _ = planned(subject)
        except RefusedError as error:
            if output is not None and page_wanted and output.suffix != ".svg":
                _write(output, refused(model, error.refusals, command, _versions()))
            raise
        possible(plan, ranks=tp, stages=pp, spread=ep)
        found = sources(subject, plan, dtype)
    axes = sizes(plan, found.group, quantised(plan, found))
    held = holdings(plan, found, Layout(tp, pp, ep))
    about = Subject(model, plan, held, axes, command, _versions(), found.disk)
    wanted = form or ("svg" if output is not None and output.suffix == ".svg" else "html")
    text = (card(about) if wanted == "svg" else page(about)).rstrip("\n") + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror or error}; give another file with -o") from error
    print(output)


def _versions() -> dict[str, str]:
    found = {}
    for name in ("hfspeed", "torch", "transformers"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "from source"
    return found
