"""Takes out what the author has silenced, and tells of comments that silence nothing."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hfspeed.lint.finding import Edit, Finding
from hfspeed.lint.ignores import EVERY, Directive
from hfspeed.lint.rule import Rule
from hfspeed.lint.rules import find
from hfspeed.refusal import Place

OURS = re.compile(r"hfs\d+$", re.IGNORECASE)


def heard(found: Iterable[Finding], said: Sequence[Directive], file: str, judged: Collection[str]) -> list[Finding]:
    """What is left of ``found``, with a finding for every comment in ``file`` that silences nothing.

    Args:
        found: findings in ``file`` and, perhaps, in others; only those in it can be silenced.
        said: the comments.
        file: the name of the file.
        judged: the codes of which all findings are known, so that a comment can be called useless; ``*`` among
            them says that no finding at all is missing.
    """
    left: list[Finding] = []
    used: set[tuple[Directive, str]] = set()
    for finding in found:
        by = [(one, one.named(finding)) for one in said] if finding.place.file == file else []
        silencing = {(one, code) for one, code in by if code is not None}
        used |= silencing
        if not silencing:
            left.append(finding)
    rule = find("HFS902")
    assert rule is not None
    unused = [told for one in said if (told := _unused(rule, one, file, used, judged)) is not None]
    return left + [one for one in unused if not any(other.silences(one) and _names(other) for other in said)]


def _names(one: Directive) -> bool:
    """Whether a comment speaks of useless comments by name; a bare one does not excuse itself."""
    return EVERY not in one.codes


def _unused(
    rule: Rule, one: Directive, file: str, used: set[tuple[Directive, str]], judged: Collection[str]
) -> Finding | None:
    useless = [code for code in one.codes if (one, code) not in used and _judged(one, code, judged)]
    if not useless or rule.code not in judged:
        return None
    words = {"said": ", ".join(useless) if EVERY not in useless else "everything"}
    place = Place(file, one.line, one.column, one.line, one.end_column)
    kept = [code for code in one.codes if code not in useless]
    return rule.told(place, (_rewritten(one, kept, place),), **words)


def _judged(one: Directive, code: str, judged: Collection[str]) -> bool:
    """Whether it can be known that ``code`` silences nothing here; other tools' codes are theirs to judge."""
    if code == EVERY:
        return one.kind != "noqa" and EVERY in judged
    rule = find(code)
    if rule is not None:
        return rule.code in judged and rule.code != "HFS902"
    return one.kind != "noqa" or OURS.match(code) is not None


def _rewritten(one: Directive, codes: list[str], place: Place) -> Edit:
    """The comment with these codes left in it; without any it goes, and so does a line that was nothing else."""
    if not codes and one.alone:
        return Edit(Place(place.file, one.line, 1, one.line + 1, 1), "")
    if not codes:
        return Edit(replace(place, column=one.margin), "")
    listed = ", ".join(codes)
    words = {"noqa": f"# noqa: {listed}", "file": f"# hfspeed: noqa: {listed}"}
    return Edit(place, words.get(one.kind, f"# hfspeed: {one.kind}[{listed}]"))
