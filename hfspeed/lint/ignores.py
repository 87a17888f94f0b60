"""Which findings the author has silenced, by comments on a line, over a range or for the whole file."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hfspeed.lint.finding import Finding

EVERY = "*"
LAST = 10**9
LINE = re.compile(
    r"#\s*noqa(?!\w)(?P<noqa>\s*:\s*[A-Za-z]+\d+(?:[\s,]+[A-Za-z]+\d+)*)?"
    r"|#\s*hfspeed:\s*ignore(?P<ignore>\[[^\]]*\])?(?![\w-])"
    r"|#\s*hfspeed:\s*(?P<range>disable|enable)(?P<codes>\[[^\]]*\])?(?![\w-])",
    re.IGNORECASE,
)
FILE = re.compile(r"^#\s*hfspeed:\s*noqa(?P<codes>\s*:\s*[\w-]+(?:[\s,]+[\w-]+)*)?\s*(?:--.*)?$", re.IGNORECASE)
CODE = re.compile(r"[A-Za-z][\w-]*")


@dataclass(frozen=True)
class Directive:
    """One comment, or part of one, that silences.

    Attributes:
        kind: ``noqa``, which other tools read too, ``ignore``, ``disable`` or ``file``.
        codes: the codes and names as they are written; ``*`` alone when none are.
        first: the first line that is silenced.
        last: the last.
        line: where the comment stands.
        column: where it begins, from 1.
        end_column: where it ends, its reason included.
        margin: where the blanks before it begin.
        alone: whether nothing else is on the line.
    """

    kind: str
    codes: tuple[str, ...]
    first: int
    last: int
    line: int
    column: int
    end_column: int
    margin: int = 1
    alone: bool = False

    def silences(self, finding: Finding) -> bool:
        """Whether ``finding`` is silenced, by its first or its last line."""
        return self.named(finding) is not None

    def named(self, finding: Finding) -> str | None:
        """The code, as it is written, that silences ``finding``."""
        place = finding.place
        if not any(self.first <= line <= self.last for line in (place.line, place.end_line or place.line)):
            return None
        names = {EVERY, finding.code.lower(), finding.name.lower()}
        return next((code for code in self.codes if code.lower() in names), None)


def directives(text: str) -> tuple[Directive, ...]:
    """Read ``# noqa``, ``# noqa: HFS201``, ``# hfspeed: ignore[HFS201]``, ``# hfspeed: disable[…]`` and ``enable``;
    for a file, ``# hfspeed: noqa`` alone on a line.
    """
    lowered = text.lower()
    if "noqa" not in lowered and "hfspeed:" not in lowered:
        return ()
    found: list[Directive] = []
    for line, before, comment in _comments(text):
        if not before.strip() and (whole := FILE.match(comment)):
            end = len(before) + 1 + len(comment)
            found.append(Directive("file", _codes(whole["codes"]), 1, LAST, line, len(before) + 1, end, 1, True))
            continue
        for match in LINE.finditer(comment):
            found = _read(found, match, line, before, comment)
    return tuple(found)


def _read(found: list[Directive], match: re.Match[str], line: int, before: str, comment: str) -> list[Directive]:
    after = comment.find("#", match.end())
    said = comment[match.start() : None if after < 0 else after].rstrip()
    ahead = before + comment[: match.start()]
    place = (line, len(ahead) + 1, len(ahead + said) + 1, len(ahead.rstrip()) + 1, not ahead.strip() and after < 0)
    if match["range"] is None:
        kind = "ignore" if "noqa" not in match[0].lower() else "noqa"
        return [*found, Directive(kind, _codes(match["noqa"] or match["ignore"]), line, line, *place)]
    codes = _codes(match["codes"])
    if match["range"].lower() == "disable":
        return [*found, Directive("disable", codes, line, LAST, *place)]
    ended = {code.lower() for code in codes}
    return [
        replace(one, last=line)
        if one.kind == "disable" and one.last == LAST and (EVERY in codes or {c.lower() for c in one.codes} <= ended)
        else one
        for one in found
    ]


def _codes(listed: str | None) -> tuple[str, ...]:
    """The codes in ``: A1, B2`` or ``[A1, B2]``; everything when no list is given."""
    return tuple(CODE.findall(listed)) if listed is not None else (EVERY,)


def _comments(text: str) -> Iterator[tuple[int, str, str]]:
    """Every comment: its line, what stands before it on that line, and itself."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.line[: token.start[1]], token.string
    except (tokenize.TokenError, SyntaxError):
        pass  # what could be read counts; that the file does not parse is told by a rule
