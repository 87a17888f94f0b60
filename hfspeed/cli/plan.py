"""``hfspeed plan``: what was decided about a model, block by block, with the proofs and the refusals."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from hfspeed.cli.layout import possible
from hfspeed.errors import UsageError


def plan(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A local folder or the name of a model.")],
    tp: Annotated[int, typer.Option("--tp", min=1, metavar="N", help="Tell what each of N ranks holds.")] = 1,
    pp: Annotated[int, typer.Option("--pp", min=1, metavar="N", help="Tell where N pipeline stages are cut.")] = 1,
    ep: Annotated[
        int, typer.Option("--ep", min=1, metavar="N", help="Tell which experts each of N ranks holds whole.")
    ] = 1,
    form: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Text for people, JSON for programs.")
    ] = "text",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="TYPE", help="What it is served in; by default as vLLM would.")
    ] = "auto",
    check: Annotated[
        bool, typer.Option("--check", help="Check the plans in the configuration, at these sizes; 1 if any is wrong.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what --write would change, for --tp N ranks, else 2.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Put base_model_tp_plan, _pp_plan and _ep_plan into the configuration file.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Show what hfspeed decides about a model: what is fused, split and cut, the proofs, and what was refused.

    Then what each rank of each stage holds and sends, and which numbers of them are possible. No weights are read, but
    where the model has some, their headers are.
    """
    if check or diff or write:
        _plans(model, trust_remote_code, check=check, diff=diff, write=write, sizes=(tp, pp, ep))
        return
    from rich.console import Console

    from hfspeed.plan import holdings_text, json, text
    from hfspeed.plan.holdings import holdings
    from hfspeed.plan.places import Layout
    from hfspeed.plan.sizes import sizes
    from hfspeed.planner.load import load
    from hfspeed.planner.serve import planned
    from hfspeed.planner.sources import on_disk, quantised, sources

    with Console(stderr=True).status(f"planning {model}"):
        subject = load(model, trust_remote_code=trust_remote_code)
        on_disk(subject)  # broken files are told at once
        decided, _ = planned(subject)
        possible(decided, ranks=tp, stages=pp, spread=ep)
        found = sources(subject, decided, dtype)
    held = holdings(decided, found, Layout(tp, pp, ep))
    axes = sizes(decided, found.group, quantised(decided, found))
    if form == "json":
        sys.stdout.write(json.dumps(decided, indent=2, holds=holdings_text.as_data(held, axes, disk=found.disk)) + "\n")
        return
    sys.stdout.write(text.render(decided, ranks=tp, stages=pp, spread=ep))
    sys.stdout.write("\n" + holdings_text.rendered(held, axes, disk=found.disk, lost=found.lost))


def _plans(model: str, trust: bool, *, check: bool, diff: bool, write: bool, sizes: tuple[int, int, int]) -> None:
    """The other three requests, about what the configuration says."""
    from hfspeed.cli import plans

    if check and (diff or write):
        raise UsageError("--check tells what is wrong, --diff and --write mend it; give one of them")
    if check:
        plans.check(model, trust=trust, tp=sizes[0], pp=sizes[1], ep=sizes[2])
    else:
        plans.write(model, trust=trust, only_show=diff, tp=sizes[0])
