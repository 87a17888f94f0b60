"""`python -m demo`: check, plan and serve an annotated decoder with real weights, and ask it a question."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from demo import evidence, question, weights
from demo.failure import DemoError
from demo.server import Server

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "smollm"
KEPT = Path(os.environ.get("HFSPEED_DEMO_DIR", ROOT / ".demo"))
QUESTION = "What is the capital of France?"
EXPECTED = "Paris"


def main() -> int:
    """Run the six steps; 0 when the served model answered rightly and hfspeed served it."""
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        run(console)
    except DemoError as error:
        console.print(f"\n[bold red]The demo failed.[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted.")
        return 130
    console.print("\n[bold green]Done.[/] One modeling file: trains in transformers, served in vLLM by hfspeed.")
    return 0


def run(console: Console) -> None:
    """Weights, check, plan, server, question, evidence."""
    folder = KEPT / "model"
    console.rule("1  Weights", align="left")
    weights.prepare(folder, EXAMPLE, console)

    console.rule("2  Check the modeling file", align="left")
    hfspeed(console, "check", str(EXAMPLE / "modeling_small.py"))

    console.rule("3  Plan", align="left")
    hfspeed(console, "plan", str(folder), "--trust-remote-code")

    console.rule("4  Serve", align="left")
    with Server(folder, log=KEPT / "server.log") as server:
        server.wait(console)
        console.rule("5  Ask", align="left")
        answer = question.ask(server.url, QUESTION)
        console.print(f"[dim]user[/]       {QUESTION}\n[dim]assistant[/]  [bold]{answer}[/]")
    if EXPECTED not in answer:
        raise DemoError(f"The answer should name {EXPECTED}. The server's log is {server.log}.")

    console.rule("6  Who served it", align="left")
    evidence.show(server.log, weights.architecture(EXAMPLE), console)


def hfspeed(console: Console, *arguments: str) -> None:
    """Run one hfspeed command and let it print.

    Raises:
        DemoError: it did not exit with 0.
    """
    shown = [str(Path(text).relative_to(ROOT)) if Path(text).is_relative_to(ROOT) else text for text in arguments]
    console.print(f"[bold]$ hfspeed {' '.join(shown)}[/]")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "hfspeed", *arguments], check=False, timeout=600)
    if done.returncode:
        raise DemoError(f"hfspeed {arguments[0]} exited with {done.returncode}.")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    raise SystemExit(main())
