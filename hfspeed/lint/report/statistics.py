"""How often each rule was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from hfspeed.lint.finding import Finding, Fix


def statistics(findings: Sequence[Finding], files: Sequence[str]) -> Text:  # noqa: ARG001
    """One line per rule, the most frequent first; a star says that hfspeed can mend some of them."""
    counts = Counter((finding.code, finding.name) for finding in findings)
    mended = {finding.code for finding in findings if finding.fix is not Fix.NONE}
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    width = len(str(max(counts.values(), default=0)))
    lines = [f"{count:>{width}}  {code}  [{'*' if code in mended else ' '}]  {name}" for (code, name), count in ordered]
    return Text("\n".join(lines))
