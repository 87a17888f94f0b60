"""How findings are told: one file per format, each with a function of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import cast

from rich.text import Text

from hfspeed.lint.finding import Finding

FORMATS = ("full", "concise", "json", "github", "gitlab", "junit", "sarif")
Report = Callable[[Sequence[Finding], Sequence[str]], Text]


def report(name: str) -> Report:
    """The function for a format, or for ``statistics``; only the one that is asked for is imported."""
    return cast("Report", getattr(import_module(f"{__name__}.{name}"), name))
