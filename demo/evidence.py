"""Who served it: what hfspeed wrote into the server's log."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from demo.failure import DemoError

SAID = re.compile(r"\[[\w.]+:\d+\] (hfspeed\b.*)")


def show(log: Path, console: Console) -> None:
    """Print what hfspeed said about the class it served and the fusions it used.

    Raises:
        DemoError: it said nothing, so something else served the model.
    """
    said = dict.fromkeys(SAID.findall(log.read_text("utf-8", errors="replace")))
    if not said:
        raise DemoError(f"hfspeed did not serve this model; the server's log is {log}.")
    for line in said:
        console.print(f"  {escape(line)}")
