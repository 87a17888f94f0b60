"""Which findings the author has silenced, by comments on a line or for the whole file."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass, field

from hfspeed.lint.finding import Finding

EVERY = "*"
LINE = re.compile(
    r"#\s*noqa(?!\w)(?P<noqa>\s*:\s*[A-Za-z]+\d+(?:[\s,]+[A-Za-z]+\d+)*)?"
    r"|#\s*hfspeed:\s*ignore(?P<ignore>\[[^\]]*\])?(?![\w-])",
    re.IGNORECASE,
)
FILE = re.compile(r"^#\s*hfspeed:\s*noqa(?P<codes>\s*:\s*[\w-]+(?:[\s,]+[\w-]+)*)?\s*(?:--.*)?$", re.IGNORECASE)
CODE = re.compile(r"[A-Za-z][\w-]*")


@dataclass(frozen=True)
class Ignores:
    """The codes and rule names silenced in one file; ``*`` stands for all of them.

    Attributes:
        file: silenced everywhere.
        lines: silenced by line.
    """

    file: frozenset[str] = frozenset()
    lines: dict[int, frozenset[str]] = field(default_factory=dict)

    def silence(self, finding: Finding) -> bool:
        """Whether the author has silenced ``finding``, on its first or its last line or for the file."""
        place = finding.place
        lines = {place.line, place.end_line or place.line}
        silenced = self.file.union(*(self.lines.get(line, frozenset()) for line in lines))
        return bool(silenced & {EVERY, finding.code.upper(), finding.name.upper()})


def ignores(text: str) -> Ignores:
    """Read ``# noqa``, ``# noqa: HFS201`` and ``# hfspeed: ignore[HFS201]``; for a file, ``# hfspeed: noqa`` alone."""
    file: set[str] = set()
    lines: dict[int, frozenset[str]] = {}
    for number, column_is_first, comment in _comments(text):
        if column_is_first and (found := FILE.match(comment)):
            file |= _codes(found["codes"])
        elif found := LINE.search(comment):
            lines[number] = lines.get(number, frozenset()) | _codes(found["noqa"] or found["ignore"])
    return Ignores(frozenset(file), lines)


def _codes(listed: str | None) -> frozenset[str]:
    """The codes in ``: A1, B2`` or ``[A1, B2]``; everything when no list is given."""
    return frozenset(code.upper() for code in CODE.findall(listed)) if listed is not None else frozenset({EVERY})


def _comments(text: str) -> list[tuple[int, bool, str]]:
    found: list[tuple[int, bool, str]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                alone = not token.line[: token.start[1]].strip()
                found.append((token.start[0], alone, token.string))
    except (tokenize.TokenError, SyntaxError):
        pass  # what could be read counts; that the file does not parse is told by a rule
    return found
