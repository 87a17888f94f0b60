"""Every finding with the line it is about, what it costs and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from hfspeed.lint.finding import Finding
from hfspeed.lint.report.concise import STYLES, headline
from hfspeed.lint.shown import forget, line


def full(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """Every finding as a paragraph: headline, the line with carets, cost, help."""
    forget()
    return Text("\n\n").join(_paragraph(finding) for finding in findings)


def _paragraph(finding: Finding) -> Text:
    lines = [headline(finding), *_frame(finding)]
    for word, said in (("cost", finding.cost), ("help", finding.help)):
        if said:
            lines.append(Text.assemble("    ", (f"{word}: ", "bold"), said))
    return Text("\n").join(lines)


def _frame(finding: Finding) -> list[Text]:
    """The blamed line with carets below it; nothing when the file has no such line."""
    place = finding.place
    source = line(place.file, place.line)
    if not source.strip():
        return []
    shown = source.expandtabs(4)
    start = len(source[: place.column - 1].expandtabs(4))
    one_line = place.end_column is not None and place.end_line in (None, place.line)
    end = len(source[: place.end_column - 1].expandtabs(4)) if one_line and place.end_column else len(shown.rstrip())
    number = str(place.line)
    gutter = " " * len(number)
    carets = Text(" " * start + "^" * max(end - start, 1), STYLES[finding.severity])
    return [
        Text(f"{gutter} |", "dim"),
        Text.assemble((f"{number} | ", "dim"), shown),
        Text.assemble((f"{gutter} | ", "dim"), carets),
    ]
