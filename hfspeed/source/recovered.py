"""A method as its author wrote it: text, tree, and the way between both and the file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from hfspeed.refusal import Place


@dataclass(frozen=True, eq=False)
class Recovered:
    """One ``def`` with its decorators, dedented; comments and layout are the author's.

    Attributes:
        text: the source; its lines are the file's, without the indentation of the ``def``.
        tree: the definition parsed from ``text``.
        file: where it stands.
        line: line in ``file`` of the first line of ``text``.
        indent: columns of white space before the ``def`` in ``file``.
        cls_module / cls_name: the class that defines the method.
        self_name: its first parameter.
        module: the module whose globals the method sees; nearly always ``cls_module``.
        inert: indices of decorators that returned the function itself, so left nothing to run.
        removed: columns taken from each line (fewer where a line had less white space).
    """

    text: str
    tree: ast.FunctionDef
    file: str
    line: int
    indent: int
    cls_module: str
    cls_name: str
    self_name: str
    module: str
    inert: tuple[int, ...] = ()
    removed: tuple[int, ...] = field(default=(), repr=False)

    def node_at(self, lineno: int, end_lineno: int, col: int, end_col: int) -> ast.AST | None:
        """The expression at a position of the file, as ``co_positions`` gives it (columns in bytes).

        An exact fit comes first. A call at the end of a chain that spans lines is recorded from its
        last name on, so next comes the smallest expression that holds the position and ends with it.
        """
        start, end = self._inner(lineno, col), self._inner(end_lineno, end_col)
        if start is None or end is None:
            return None
        exact = self._by_range.get((start, end))
        if exact is not None:
            return exact
        around = [(s, node) for s, node in self._by_end.get(end, ()) if s <= start]
        return max(around, key=lambda found: found[0])[1] if around else None

    def _inner(self, lineno: int, col: int) -> tuple[int, int] | None:
        row = lineno - self.line
        if not 0 <= row < len(self._lines):
            return None
        return (row + 1, col - (self.removed[row] if self.removed else 0))

    @cached_property
    def _by_range(self) -> dict[tuple[tuple[int, int], tuple[int, int]], ast.AST]:
        """An expression statement yields to its expression, and a wrapping to what it wraps."""
        found: dict[tuple[tuple[int, int], tuple[int, int]], ast.AST] = {}
        for node in self._positioned():
            span = _span(node)
            if not isinstance(found.get(span), ast.expr) or isinstance(node, ast.expr):
                found[span] = node
        return found

    @cached_property
    def _by_end(self) -> dict[tuple[int, int], list[tuple[tuple[int, int], ast.expr]]]:
        found: dict[tuple[int, int], list[tuple[tuple[int, int], ast.expr]]] = {}
        for node in self._positioned():
            if isinstance(node, ast.expr):
                start, end = _span(node)
                found.setdefault(end, []).append((start, node))
        return found

    def _positioned(self) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if hasattr(node, "lineno"))

    def place(self, node: ast.AST) -> Place:
        """Where ``node`` stands in the file; columns count characters from 1."""
        (row, col), (end_row, end_col) = _span(node)
        return Place(
            self.file,
            self.line + row - 1,
            self._column(row, col),
            self.line + end_row - 1,
            self._column(end_row, end_col),
        )

    def _column(self, row: int, col: int) -> int:
        before = self._lines[row - 1].encode()[:col].decode()
        return len(before) + (self.removed[row - 1] if self.removed else 0) + 1

    def segment(self, node: ast.AST) -> str:
        """The text of ``node``, as written."""
        start, end = self.offsets(node)
        return self.text[start:end]

    def offsets(self, node: ast.AST) -> tuple[int, int]:
        """First and last offset of ``node`` in ``text``, in characters."""
        (row, col), (end_row, end_col) = _span(node)
        return self._offset(row, col), self._offset(end_row, end_col)

    def _offset(self, row: int, col: int) -> int:
        return self._starts[row - 1] + len(self._lines[row - 1].encode()[:col].decode())

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line) + 1)
        return starts

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def parent_of(self, node: ast.AST) -> ast.AST | None:
        """The node that holds ``node``; ``None`` for the definition itself."""
        return self._parents.get(node)

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that ``node`` is or belongs to."""
        current: ast.AST | None = node
        while current is not None and not isinstance(current, ast.stmt):
            current = self._parents.get(current)
        if current is None:
            raise ValueError(f"{ast.dump(node)} is no part of {self.cls_name}.{self.tree.name}")
        return current

    def block_of(self, stmt: ast.stmt) -> list[ast.stmt]:
        """The list of statements that holds ``stmt``."""
        parent = self._parents.get(stmt)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(parent, name, None)
            if isinstance(block, list) and any(other is stmt for other in block):
                return block
        raise ValueError(f"line {stmt.lineno} of {self.cls_name}.{self.tree.name} is in no block")


def is_elif(recovered: Recovered, stmt: ast.stmt) -> bool:
    """Whether ``stmt`` is written as an ``elif``, so shares its block with nothing."""
    return isinstance(stmt, ast.If) and recovered.segment(stmt).startswith("elif")


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    start = (getattr(node, "lineno"), getattr(node, "col_offset"))  # noqa: B009  not on every AST
    return start, (getattr(node, "end_lineno"), getattr(node, "end_col_offset"))  # noqa: B009
