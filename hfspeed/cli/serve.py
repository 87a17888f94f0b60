"""``hfspeed serve``: vLLM's own server, told to take the model through transformers and so through hfspeed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from hfspeed.errors import UsageError
from hfspeed.planner.folder import look, path_of

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
    _look(model, context.args)
    command = [sys.executable, "-m", SERVER, *arguments(model, context.args)]
    sys.stdout.flush()
    # Replacing this process lets signals and the exit code pass as if vLLM had been started by hand.
    os.execv(sys.executable, command)  # noqa: S606


OWN_READING = frozenset({
    "--model-impl", "--hf-overrides", "--config-format", "--hf-config-path", "--load-format", "--quantization",
})  # fmt: skip
"""Flags that say how vLLM is to read what the folder holds, so that it alone can tell what is wrong with it."""


def _look(model: str, flags: list[str]) -> None:
    """Tell what is wrong with a folder before a server is started for it, whose answer would be long."""
    given = {flag.split("=", 1)[0].replace("_", "-") for flag in flags}
    path = path_of(model)
    if path.suffix == ".py" and path.is_file():
        raise UsageError(f"{model} is a modeling file; a server needs a folder, with config.json and weights")
    if given & OWN_READING:
        return
    look(model)
    if path.is_dir():
        from hfspeed.planner.load import load

        load(model, trust_remote_code="--trust-remote-code" in given)
    elif _unreachable(model):
        raise UsageError(
            f"{model} is no folder here and not in the cache of the Hub, which is not asked while HF_HUB_OFFLINE is set"
        )


def _unreachable(name: str) -> bool:
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    if not constants.HF_HUB_OFFLINE:
        return False
    try:
        return not isinstance(try_to_load_from_cache(name, "config.json"), str)
    except HFValidationError:
        return True


def arguments(model: str, flags: list[str]) -> list[str]:
    """The server's arguments: the model, the way through transformers unless one was chosen, and ``flags``."""
    chosen = any(flag.split("=", 1)[0].replace("_", "-") == "--model-impl" for flag in flags)
    return ["--model", model, *([] if chosen else ["--model-impl", "transformers"]), *flags]
