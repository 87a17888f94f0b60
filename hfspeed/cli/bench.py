"""``hfspeed bench``: several ways to serve one model, measured side by side."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hfspeed.errors import UsageError

if TYPE_CHECKING:
    from hfspeed.bench.result import Result

FORMS = (".json", ".svg")
Size = Annotated[int | None, typer.Option(min=1, metavar="N")]


def bench(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A local folder, the name of a model, or a preset (--presets).")
    ] = "",
    arms: Annotated[
        str | None,
        typer.Option("--arms", metavar="NAME,…", help="Some of native, hfspeed, unfused, peer, hfspeed-FUSION."),
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=5, metavar="N", help="How often each arm is measured.")] = 5,
    starts: Annotated[int, typer.Option("--starts", min=1, metavar="N", help="How many warm starts are measured.")] = 1,
    prompts: Annotated[int | None, typer.Option("--prompts", min=1, metavar="N", help="Requests in a round.")] = None,
    input_len: Annotated[int | None, typer.Option("--input-len", min=1, metavar="N", help="Tokens of one.")] = None,
    output_len: Annotated[int | None, typer.Option("--output-len", min=2, metavar="N", help="New tokens.")] = None,
    output: Annotated[
        list[Path] | None, typer.Option("--output", metavar="FILE", help="Write a .json or an .svg; may be repeated.")
    ] = None,
    tensor_parallel_size: Size = None,
    pipeline_parallel_size: Size = None,
    data_parallel_size: Size = None,
    enable_expert_parallel: Annotated[bool, typer.Option("--enable-expert-parallel")] = False,
    enforce_eager: Annotated[bool, typer.Option("--enforce-eager", help="Do not compile.")] = False,
    dtype: Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help="What to compute in.")] = None,
    load_format: Annotated[str | None, typer.Option("--load-format", metavar="FORMAT", help="As vLLM's.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Start arms anew in each round: they need not fit beside each other.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--folder", metavar="DIR", help="Keep caches and logs there; must be empty.")
    ] = None,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets and exit.")] = False,
) -> None:
    """Measure native vLLM, hfspeed, hfspeed without fusions, and vLLM's transformers backend, side by side.

    Each arm has a process and caches of its own; rounds are interleaved; ratios to native come with an interval.
    A folder with nothing but a config.json is enough. Ctrl-C ends it early and keeps what was measured.
    """
    if presets:
        _list()
        return
    if not model:
        raise UsageError("name a model, a folder or a preset; `hfspeed bench --presets` lists the presets")
    outputs = _outputs(output or [])
    flags = {
        "tensor_parallel_size": tensor_parallel_size,
        "pipeline_parallel_size": pipeline_parallel_size,
        "data_parallel_size": data_parallel_size,
        "enable_expert_parallel": enable_expert_parallel or None,
        "enforce_eager": enforce_eager or None,
        "dtype": dtype,
        "load_format": load_format,
        "trust_remote_code": trust_remote_code or None,
    }
    load = {"prompts": prompts, "input_len": input_len, "output_len": output_len}
    with tempfile.TemporaryDirectory(prefix="hfspeed-bench-") as made:
        place = _empty(folder) if folder else Path(made)
        result = _measured(model, place, arms, rounds, _said(load), _said(flags), restart=restart, starts=starts)
    _told(result, outputs)
    if result.interrupted:
        raise typer.Exit(130)
    if any(record.error for record in result.records):
        raise typer.Exit(1)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _list() -> None:
    from hfspeed.bench.presets import names, preset

    for name in names():
        one = preset(name)
        assert one is not None
        print(f"{name:<22}{one.about}; {one.prompts} prompts of {one.input_len} tokens, {one.output_len} new")


def _outputs(files: list[Path]) -> list[Path]:
    for file in files:
        if file.suffix not in FORMS:
            raise UsageError(f"--output {file}: write a name that ends in {' or '.join(FORMS)}")
        if not file.absolute().parent.is_dir():
            raise UsageError(f"--output {file}: the folder {file.absolute().parent} is not there; make it first")
    return files


def _empty(folder: Path) -> Path:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--folder {folder} is not an empty folder; a start would not be cold in it, name another")
    return folder


def _measured(
    model: str,
    folder: Path,
    arms: str | None,
    rounds: int,
    load: dict[str, int],
    flags: dict[str, Any],
    *,
    restart: bool,
    starts: int,
) -> Result:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from hfspeed.bench.arms import chosen
    from hfspeed.bench.machine import machine
    from hfspeed.bench.result import Result
    from hfspeed.bench.run import Bench
    from hfspeed.bench.subject import settled

    wanted = chosen(arms)
    errors = Console(stderr=True)
    if find_spec("vllm") is None:
        raise UsageError('measuring needs vllm, which is not installed; run: pip install "hfspeed[vllm]"')
    with errors.status(f"preparing {model}"):
        subject = settled(model, folder, load, flags, rounds=rounds, arms=len(wanted), restart=restart, starts=starts)
    command = shlex.join(["hfspeed", *sys.argv[1:]])
    title = Path(model).resolve().name if Path(model).is_dir() else model
    result = Result(title, command, asdict(subject.job), machine(), comparable=subject.comparable)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=errors
    )
    task = bar.add_task("starting", total=None)

    def tell(step: str) -> None:
        seen = bar.tasks[task].description
        bar.update(task, description=step, total=run.steps, advance=0 if seen == "starting" else 1)
        if not errors.is_terminal:  # a bar is drawn once there, at the end
            errors.print(step, highlight=False)

    run = Bench(subject.job, wanted, folder, result, environ=subject.environ, tell=tell)
    bar.update(task, total=run.steps)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # asked to end it keeps what it has, as with Ctrl-C
    with bar:
        run.run()
        bar.update(task, completed=run.steps if not result.interrupted else bar.tasks[task].completed)
    result.machine["load_at_the_end"] = [round(value, 2) for value in os.getloadavg()]
    return result


def _told(result: Result, outputs: list[Path]) -> None:
    from rich.console import Console

    from hfspeed.bench.chart import chart
    from hfspeed.bench.machine import in_short
    from hfspeed.bench.table import notes, table

    console = Console()
    if not console.is_terminal:
        console.width = max(120, 42 + 20 * len(result.records))
    console.print(table(result))
    console.print(in_short(result.machine), style="dim", highlight=False)
    for note in notes(result):
        console.print(note, highlight=False, markup=False)
    for file in outputs:
        text = chart(result) if file.suffix == ".svg" else json.dumps(result.as_data(), indent=1) + "\n"
        file.write_text(text, "utf-8")
        print(f"wrote {file}", file=sys.stderr)
