"""Parentheses around a new expression where its place would otherwise change its meaning."""

from __future__ import annotations

import ast

from hfspeed.source.recovered import Recovered

_TIGHT = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Attribute, ast.Await, ast.Starred,
    ast.IfExp, ast.comprehension,
)  # fmt: skip
_ATOMS = (
    ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.ListComp,
    ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Constant, ast.JoinedStr,
)  # fmt: skip


def fitted(recovered: Recovered, node: ast.AST, text: str) -> str:
    """``text``, in parentheses if it would not be read as one expression where ``node`` stands.

    Raises:
        ValueError: ``node`` stands in an f-string, where positions and quotes are not reliable.
    """
    if not isinstance(node, ast.expr):
        return text
    if _in_fstring(recovered, node):
        raise ValueError(f"cannot replace inside an f-string: {recovered.place(node)}")
    new = _parsed(f"(\n{text}\n)")
    if new is None or _grouped(recovered, node):
        return text  # not parsed: a starred argument or the like; `Edits.apply` checks the whole
    bare = _parsed(text.strip())
    if bare is None:
        return f"({text})"  # spans lines outside any bracket
    if bare.col_offset > 0 or (isinstance(bare, ast.Tuple) and text.strip().startswith("(")):
        return text
    parent = recovered.parent_of(node)
    loose = isinstance(bare, ast.NamedExpr) or (
        isinstance(bare, ast.Tuple | ast.Yield) and not isinstance(parent, ast.stmt)
    )
    return f"({text})" if loose or (_is_tight(parent, node) and not _is_atom(bare, parent)) else text


def _in_fstring(recovered: Recovered, node: ast.AST) -> bool:
    parent = recovered.parent_of(node)
    while parent is not None and not isinstance(parent, ast.stmt | ast.JoinedStr):
        parent = recovered.parent_of(parent)
    return isinstance(parent, ast.JoinedStr)


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _grouped(recovered: Recovered, node: ast.expr) -> bool:
    """Whether the author already wrote parentheses that hold exactly ``node``."""
    start, end = recovered.offsets(node)
    before, after = recovered.text[:start].rstrip(), recovered.text[end:].lstrip()
    parent = recovered.parent_of(node)
    argument = isinstance(parent, ast.Call | ast.keyword | ast.ClassDef)
    argument = argument and node is not getattr(parent, "func", None)
    return before.endswith("(") and after.startswith(")") and not argument


def _is_tight(parent: ast.AST | None, node: ast.expr) -> bool:
    """Whether ``node`` stands bare beside an operator of ``parent``, not inside its brackets."""
    if isinstance(parent, ast.Call):
        return node is parent.func
    if isinstance(parent, ast.Subscript):
        return node is parent.value
    return isinstance(parent, _TIGHT)


def _is_atom(new: ast.expr, parent: ast.AST | None) -> bool:
    if isinstance(new, ast.Constant) and isinstance(parent, ast.Attribute):
        return not isinstance(new.value, int)
    return isinstance(new, _ATOMS)
