"""Small edits of Python text that keep its layout: arguments added, nodes replaced, lines put in."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from itertools import pairwise

from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Edit
from hfspeed.refusal import Place

BLANK = frozenset({tokenize.COMMENT, tokenize.DEDENT, tokenize.INDENT, tokenize.NEWLINE, tokenize.NL})


@dataclass(frozen=True)
class _Token:
    text: str
    start: tuple[int, int]
    end: tuple[int, int]


def replaced(facts: Facts, node: ast.AST, text: str) -> Edit:
    """Put ``text`` where ``node`` is."""
    return Edit(facts.span(node), text)


def source(facts: Facts, node: ast.AST) -> str:
    """The text of ``node`` as it is written."""
    place = facts.span(node)
    end_line, end_column = place.end_line or place.line, place.end_column or place.column
    lines = facts.lines[place.line - 1 : end_line]
    lines[-1] = lines[-1][: end_column - 1]
    lines[0] = lines[0][place.column - 1 :]
    return "\n".join(lines)


def inserted(facts: Facts, line: int, column: int, text: str) -> Edit:
    """Put ``text`` before the character at ``line`` and ``column``, which count from 1."""
    return Edit(Place(str(facts.path), line, column, line, column), text)


def argument_added(facts: Facts, node: ast.Call | ast.FunctionDef, text: str) -> Edit | None:
    """Put one more argument last into a call, or one more parameter into a signature; on a line as the last one is."""
    place = facts.span(node)
    if isinstance(node, ast.Call):
        if len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp):
            return None
        place = facts.span(node.func)
        line, column = place.end_line or place.line, place.end_column or place.column
    else:
        line, column = place.line, place.column
    inner = _inside(facts, line, column)
    if inner is None:
        return None
    if len(inner) == 1:
        return inserted(facts, *inner[0].end, text)
    before = inner[:-1] if inner[-1].text == "," else inner
    white = _own_line(facts, _last_argument(before))
    return inserted(facts, *before[-1].end, f", {text}" if white is None else f",\n{white}{text}")


def _inside(facts: Facts, line: int, column: int) -> list[_Token] | None:
    """The tokens from the first ``(`` at or after a position up to where it closes, which is left out."""
    rest = [facts.lines[line - 1][column - 1 :], *facts.lines[line:]]
    found: list[_Token] = []
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(rest)).readline):
            if token.type in BLANK or (not found and token.string != "("):
                continue
            depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
            if depth == 0:
                return found
            found.append(_Token(token.string, _moved(token.start, line, column), _moved(token.end, line, column)))
    except (tokenize.TokenError, SyntaxError):
        pass
    return None


def _moved(position: tuple[int, int], line: int, column: int) -> tuple[int, int]:
    row, offset = position
    return line + row - 1, offset + (column if row == 1 else 1)


def _last_argument(tokens: list[_Token]) -> _Token:
    """The first token of the last argument."""
    depth, first = 0, tokens[1]
    for token, after in pairwise(tokens):
        depth += (token.text in "([{") - (token.text in ")]}") if len(token.text) == 1 else 0
        if depth == 1 and token.text == ",":
            first = after
    return first


def _own_line(facts: Facts, token: _Token) -> str | None:
    """The indentation of ``token`` when nothing stands before it on its line."""
    before = facts.lines[token.start[0] - 1][: token.start[1] - 1]
    return before if not before.strip() else None
