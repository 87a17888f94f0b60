"""Edits that take whole statements and decorators away, lines and all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from difflib import get_close_matches

from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit
from hfspeed.lint.nodes import walk
from hfspeed.lint.rewrite import replaced, source
from hfspeed.refusal import Place


def without(facts: Facts, statement: ast.stmt) -> Edit | None:
    """The edit that takes ``statement`` away; none where something else stands on its lines."""
    block = next((block for block in _blocks(facts.tree) if any(one is statement for one in block)), None)
    if block is None:
        return None
    if len(block) == 1:
        return replaced(facts, statement, "pass")
    edit = _lines(facts, statement, "")
    if edit is None or statement is not block[0]:
        return edit
    end = edit.place.end_line or 1
    while end < len(facts.lines) and not facts.lines[end - 1].strip():  # what set the first statement apart
        end += 1
    return Edit(Place(edit.place.file, edit.place.line, 1, end, 1), "")


def undecorated(facts: Facts, decorator: ast.expr) -> Edit | None:
    """The edit that takes a decorator away; none where something else stands on its lines."""
    return _lines(facts, decorator, "@")


def respelled(facts: Facts, node: ast.expr, wrong: str, known: list[str]) -> Edit | None:
    """The edit that puts the one of ``known`` that is spelled most like ``wrong`` in its place."""
    near = get_close_matches(wrong, known, n=1)
    written = source(facts, node)
    if not near or written[1:-1] != getattr(node, "value", None):
        return None
    parts = [near[0] if part == wrong else part for part in written[1:-1].split(".")]
    return replaced(facts, node, f"{written[0]}{'.'.join(parts)}{written[-1]}")


def _lines(facts: Facts, node: ast.AST, mark: str) -> Edit | None:
    place = facts.span(node)
    last = place.end_line or place.line
    before = facts.lines[place.line - 1][: place.column - 1].strip()
    rest = facts.lines[last - 1][(place.end_column or 1) - 1 :].strip()
    if before != mark or (rest and not rest.startswith("#")):
        return None
    return Edit(Place(place.file, place.line, 1, last + 1, 1), "")


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block
