"""Who served it: what hfspeed wrote into the server's log."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.failure import DemoError

SERVED = re.compile(r"\] hfspeed serves (\w+), .*")
FUSED = re.compile(r"\]   (\d+ x \w+: .*)")
NOT_DONE = re.compile(r"\]   (not done: .*)")
WANTED = ("qkv_proj", "gate_up_proj")


def show(log: Path, architecture: str, console: Console) -> None:
    """Print the class that hfspeed served and the fusions it used.

    Raises:
        DemoError: hfspeed did not serve ``architecture``, or a fusion that the hints promise is missing.
    """
    text = log.read_text("utf-8", errors="replace")
    if architecture not in SERVED.findall(text):
        raise DemoError(f"hfspeed did not serve {architecture}; the server's log is {log}.")
    console.print(f"vLLM served [bold]{architecture}[/] through hfspeed, with")
    fused = list(dict.fromkeys(FUSED.findall(text)))
    for line in fused:
        console.print(f"  {escape(line)}")
    for line in dict.fromkeys(NOT_DONE.findall(text)):
        console.print(f"  [dim]{escape(line)}[/]")
    missing = [name for name in WANTED if not any(name in line for line in fused)]
    if missing:
        raise DemoError(f"The fusions {', '.join(missing)} were not used; the server's log is {log}.")
