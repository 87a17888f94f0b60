"""``hfspeed plan``: what was decided about a model, block by block, with the proofs and the refusals."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import typer

from hfspeed.cli.layout import possible


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
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
) -> None:
    """Show what hfspeed decides about a model: what is fused, split and cut, the proofs, and what was refused.

    No weights are read.
    """
    from rich.console import Console

    from hfspeed.plan import json, text
    from hfspeed.planner.load import load
    from hfspeed.planner.serve import planned

    with Console(stderr=True).status(f"planning {model}"):
        decided, _ = planned(load(model, trust_remote_code=trust_remote_code))
    possible(decided, ranks=tp, stages=pp, spread=ep)
    shown = text.render(decided, ranks=tp, stages=pp, spread=ep)
    told = json.dumps(decided, indent=2) + "\n" if form == "json" else shown
    sys.stdout.write(told)
