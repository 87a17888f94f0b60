"""An example: source that must be accepted, changed or refused. Fusions and rules are tested by theirs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

from hfspeed.refusal import Reason

MARK = re.compile(r"#\s*(HFS\d{3}(?:\s*,\s*HFS\d{3})*)\s*$")


@dataclass(frozen=True)
class Example:
    """A snippet and what must become of it.

    Attributes:
        source: the code; it may be indented as a whole. A line that is blamed ends in a mark, ``# HFS103``.
        after: the code that must come out, or empty when that is not said.
        plan: the canonical plan text that must come out, or empty when that is not said.
        reason: why it must be refused; ``None`` when it must be accepted.
        widths: output widths of children that differ from the default, by name.
        children: constructor expressions of children that are no plain linear, by name (``{"act": "nn.SiLU()"}``).
        path: the name of the file it would stand in, where a rule looks at it.
        files: further files beside it, by name.
    """

    source: str
    after: str = ""
    plan: str = ""
    reason: Reason | None = None
    widths: Mapping[str, int] = field(default_factory=dict, hash=False)
    children: Mapping[str, str] = field(default_factory=dict, hash=False)
    path: str = "modeling_example.py"
    files: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """The source without common indentation, ending in one newline."""
        return dedent(self.source).strip("\n") + "\n"

    @property
    def shown(self) -> str:
        """The text as documentation shows it: without marks."""
        return "".join(MARK.sub("", line).rstrip() + "\n" for line in self.text.splitlines())

    def marks(self) -> tuple[tuple[int, str], ...]:
        """``(line, code)`` of every mark, in order; lines count from 1 in ``text``."""
        found = []
        for number, line in enumerate(self.text.splitlines(), start=1):
            if mark := MARK.search(line):
                found += [(number, code.strip()) for code in mark[1].split(",")]
        return tuple(found)
