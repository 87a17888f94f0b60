"""Attention by hand that stands in one of several ways through a method: that way becomes the only one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from hfspeed.pattern.attend_edit import AttentionEdit
from hfspeed.pattern.edit import Change, outside


def one_way(change: AttentionEdit) -> AttentionEdit:
    """The same, and every question that could lead past paged attention is answered as it was in the recorded run.

    Authors attend in one way to a row of many tokens and in another to a row of one, which has no need of a mask or
    is behind a cache. A row of ours has any number of tokens, of any number of sequences.
    """
    attends = [one.node for one in change.changes if one.kind == "replace" and ".attn(" in one.text]
    if len(attends) != 1:
        return change
    answers = list(_answers(change.recovered.tree, attends[0]))
    return replace(change, changes=(*change.changes, *outside(answers, change.changes)))


def _answers(tree: ast.AST, at: ast.AST) -> Iterator[Change]:
    for one in ast.walk(tree):
        if isinstance(one, ast.IfExp) and not _holds(one.test, at):
            for answer, arm in ((True, one.body), (False, one.orelse)):
                if _holds(arm, at):
                    yield Change("replace", one.test, str(answer))
        if isinstance(one, ast.If) and not _holds(one.test, at):
            for answer, block in ((True, one.body), (False, one.orelse)):
                if any(_holds(statement, at) for statement in block):
                    yield Change("replace", one.test, str(answer))
            if not _holds(one, at) and one.end_lineno < at.lineno and isinstance(one.body[-1], ast.Return):  # type: ignore[attr-defined]
                yield Change("replace", one.test, "False")


def _holds(tree: ast.AST, at: ast.AST) -> bool:
    return any(inner is at for inner in ast.walk(tree))
