"""One line per finding, for terminals and for programs that jump to lines."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from hfspeed.lint.finding import Finding, Severity

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold cyan"}


def headline(finding: Finding) -> Text:
    """``file:line:column: CODE message``."""
    head = Text.assemble((str(finding.place), "bold"), ": ", (finding.code, STYLES[finding.severity]), " ")
    return head.append(finding.message)


def concise(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """One line per finding."""
    return Text("\n").join(headline(finding) for finding in findings)
