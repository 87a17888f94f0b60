"""``hfspeed serve``: vLLM's own server, told to take the model through transformers and so through hfspeed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from hfspeed.errors import UsageError

SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": False}
SERVER = "vllm.entrypoints.openai.api_server"


def serve(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A local folder or the name of a model.")],
) -> None:
    """Serve a model with vLLM through hfspeed.

    Every flag after MODEL is vLLM's own and is passed on as it is: hfspeed serve MODEL --port 8001
    """
    if find_spec("vllm") is None:
        raise UsageError('serving needs vllm, which is not installed; run: pip install "hfspeed[vllm]"')
    command = [sys.executable, "-m", SERVER, *arguments(model, context.args)]
    sys.stdout.flush()
    # Replacing this process lets signals and the exit code pass as if vLLM had been started by hand.
    os.execv(sys.executable, command)  # noqa: S606


def arguments(model: str, flags: list[str]) -> list[str]:
    """The server's arguments: the model, the way through transformers unless one was chosen, and ``flags``."""
    chosen = any(flag.split("=", 1)[0].replace("_", "-") == "--model-impl" for flag in flags)
    return ["--model", model, *([] if chosen else ["--model-impl", "transformers"]), *flags]
