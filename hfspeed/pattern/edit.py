"""Source changes as values: gathered by fusions, checked against one another, applied last."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hfspeed.source import Edits, Recovered


@dataclass(frozen=True)
class Change:
    """One change of a forward's text.

    Attributes:
        kind: what is done to ``node``.
        node: an expression to replace; a statement to precede, follow or delete; the definition for a parameter;
            the call for an argument.
        text: the new expression, statement, parameter, or argument.
        names: local names that the text introduces.
    """

    kind: Literal["replace", "before", "after", "delete", "erase", "parameter", "argument"]
    node: ast.AST
    text: str = ""
    names: tuple[str, ...] = ()


def outside(changes: Iterable[Change], of: Iterable[Change]) -> list[Change]:
    """Those of ``changes`` that stand in nothing which is replaced or taken away by another change."""
    gone = [one.node for one in of if one.kind in {"replace", "delete", "erase"}]
    inside = {id(node) for one in gone for node in ast.walk(one)}
    return [change for change in changes if id(change.node) not in inside]


def changed(recovered: Recovered, changes: Iterable[Change]) -> str:
    """The text of the forward with all changes.

    Raises:
        ValueError: two changes overlap.
    """
    edits = Edits(recovered)
    for change in changes:
        match change.kind, change.node:
            case "replace", node:
                edits.replace(node, change.text)
            case "before", ast.stmt() as stmt:
                edits.insert_before(stmt, change.text)
            case "after", ast.stmt() as stmt:
                edits.insert_after(stmt, change.text)
            case "delete", ast.stmt() as stmt:
                edits.delete(stmt)
            case "erase", ast.stmt() as stmt:
                edits.erase(stmt)
            case "argument", ast.Call() as call:
                edits.append_argument(call, change.text)
            case "parameter", _:
                edits.insert_parameter(change.text, "torch.Tensor | None", "None")
    return edits.apply()
