"""``hfspeed hints``: what an author can say, and the copy that stands next to a modeling file on the Hub."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated

import typer

import hfspeed
from hfspeed.hints.vendor import NAME, vendor


def hints(
    folder: Annotated[
        Path | None, typer.Option("--vendor", metavar="DIR", help=f"Write {NAME} into this folder.")
    ] = None,
) -> None:
    """List the hints, or write them next to a modeling file.

    A modeling file on the Hub that imports hfspeed could not be loaded without it. With --vendor it
    says instead: from .hfspeed_hints import decoder_layers
    """
    if folder is not None:
        print(vendor(folder))
        return
    for name in hfspeed.__all__:
        hint = getattr(hfspeed, name)
        roles = [role for role in inspect.signature(hint).parameters if role != "cls"]
        print(f"@{name}({', '.join(roles)})\n    {(inspect.getdoc(hint) or '').splitlines()[0]}")
