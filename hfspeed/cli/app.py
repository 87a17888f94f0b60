"""The ``hfspeed`` command: finds the subcommand, and turns what goes wrong into a message and an exit code.

0 is fine, 1 is findings or unequal numbers, 2 is a wrong request or a defect.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hfspeed.errors import HfspeedError

COMMANDS = {
    "check": "Tell what keeps a modeling file from being served fast, or at all, and at which line.",
    "plan": "Show what hfspeed decides about a model.",
    "verify": "Prove that what hfspeed makes of a model computes the same numbers.",
    "emit": "Write the modeling code that hfspeed runs.",
    "report": "Write one page about a model: what is fused, what could be faster, who holds what.",
    "serve": "Serve a model with vLLM through hfspeed.",
    "bench": "Measure native vLLM, hfspeed and vLLM's transformers backend, side by side.",
    "rule": "Explain a rule of the linter.",
    "hints": "List the hints, or write them next to a modeling file.",
}
EXTRAS = {"torch": "torch", "transformers": "torch", "safetensors": "torch", "vllm": "vllm"}


class Commands(TyperGroup):
    """The subcommands by name; the module of one is imported when that one is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Put the real command in the place of its summary, then look it up."""
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = _loaded(args[0])
        return super().resolve_command(ctx, args)


def _loaded(name: str) -> Any:
    module = import_module(f"hfspeed.cli.{name}")
    one = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    one.command(name, context_settings=getattr(module, "SETTINGS", None))(getattr(module, name))
    return typer.main.get_command(one)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version  # slow, and wanted only here

        try:
            print(f"hfspeed {version('hfspeed')}")
        except PackageNotFoundError:
            print("hfspeed (not installed)")
        raise typer.Exit


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def hfspeed(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Write one transformers modeling file; serve it in vLLM at native speed."""


def _summary(name: str) -> Callable[[], None]:
    def stand_in() -> None:
        raise AssertionError(f"{name} was called before it was loaded")

    return stand_in


for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(_summary(_name))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; a traceback is shown for a defect, or with ``HFSPEED_DEBUG=1``."""
    sys.excepthook = _defect
    try:
        typer.main.get_command(app).main(arguments, prog_name="hfspeed")
    except HfspeedError as error:
        _give_up(str(error), error)
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        _give_up(f'this needs {error.name}, which is not installed; run: pip install "hfspeed[{extra}]"', error)


def _give_up(message: str, error: Exception) -> None:
    if os.environ.get("HFSPEED_DEBUG", "") not in ("", "0"):
        raise error
    print(f"hfspeed: {message}", file=sys.stderr)
    raise SystemExit(2)


def _defect(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The last resort: Python would exit with 1, which means findings here."""
    sys.__excepthook__(kind, error, trace)
    raise SystemExit(2)
