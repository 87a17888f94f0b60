"""Which names a stretch of statements reads before it has surely bound them itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from hfspeed.source.effects import bound

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Exposure:
    """Walks statements in order; `reads` are names read from outside, `sure` those bound on every path."""

    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.sure: set[str] = set()

    def block(self, stmts: Iterable[ast.stmt]) -> bool:
        """Walk a block; true if its end can be reached."""
        return all(self._statement(stmt) for stmt in stmts)

    def _statement(self, stmt: ast.stmt) -> bool:
        if isinstance(stmt, ast.Return | ast.Raise | ast.Break | ast.Continue):
            self._expression(stmt)
            return False
        if isinstance(stmt, ast.If):
            self._expression(stmt.test)
            return self._branches([stmt.body, stmt.orelse])
        if isinstance(stmt, ast.For | ast.AsyncFor):
            self._expression(stmt.iter)
            self._maybe(stmt.body, stmt.target)
            return self.block(stmt.orelse)
        if isinstance(stmt, ast.While):
            self._expression(stmt.test)
            self._maybe(stmt.body)
            return self.block(stmt.orelse)
        if isinstance(stmt, ast.With | ast.AsyncWith):
            for item in stmt.items:
                self._expression(item.context_expr)
                self.bind(item.optional_vars)
            return self.block(stmt.body)
        if isinstance(stmt, ast.Try | ast.Match) or stmt.__class__.__name__ == "TryStar":
            return self._tangled(stmt)
        self._simple(stmt)
        return True

    def _branches(self, blocks: list[list[ast.stmt]]) -> bool:
        """A name is sure after branches if every branch that reaches their end binds it."""
        before, ends = set(self.sure), []
        for block in blocks:
            self.sure = set(before)
            if self.block(block):
                ends.append(self.sure)
        self.sure = set.intersection(*ends) if ends else before
        return bool(ends)

    def _maybe(self, block: list[ast.stmt], target: ast.AST | None = None) -> None:
        """A block that may run any number of times binds nothing for sure."""
        before = set(self.sure)
        self.bind(target)
        self.block(block)
        self.sure = before

    def _tangled(self, stmt: ast.stmt) -> bool:
        """Every part of a ``try`` or ``match`` may be entered with what was sure before it."""
        before = set(self.sure)
        for child in ast.iter_child_nodes(stmt):
            self.sure = set(before)
            if isinstance(child, ast.stmt):
                self._statement(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self.sure |= set(bound([child])) - set(bound(child.body))
                self.block(child.body)
            else:
                self._expression(child)
        self.sure = before
        return True

    def _simple(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Assign):
            self._expression(stmt.value)
            for target in stmt.targets:
                self.bind(target)
        elif isinstance(stmt, ast.AnnAssign):
            if stmt.value:
                self._expression(stmt.value)
                self.bind(stmt.target)
        elif isinstance(stmt, ast.AugAssign):
            self._expression(stmt.value)
            self._read(stmt.target)
            self.bind(stmt.target)
        elif isinstance(stmt, _FUNCTIONS):
            self._expression(stmt)
            self.sure.add(stmt.name)
        else:
            self._expression(stmt)
            self.sure |= set(bound([stmt])) if isinstance(stmt, ast.Import | ast.ImportFrom) else set()

    def _expression(self, node: ast.AST) -> None:
        """Names read in ``node``. What ``:=`` binds is not sure: it may stand in a part that is skipped."""
        self.reads |= _free(node) - self.sure

    def _read(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and node.id not in self.sure:
            self.reads.add(node.id)

    def bind(self, target: ast.AST | None) -> None:
        """Bind the names of ``target``; what it indexes or whose attribute it sets is read."""
        for node in ast.walk(target) if target else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._read(node)
        self.sure |= {
            node.id
            for node in (ast.walk(target) if target else ())
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }


def _free(node: ast.AST) -> set[str]:
    """Names looked up in ``node`` and bound neither by a comprehension nor by a function in it."""
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    inner = {name for child in ast.iter_child_nodes(node) for name in _free(child)}
    if isinstance(node, _COMPREHENSIONS):
        first = _free(node.generators[0].iter)
        return inner - set(bound([generator.target for generator in node.generators])) | first
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        body = node.body if isinstance(node.body, list) else [node.body]
        outside = [*args.defaults, *(d for d in args.kw_defaults if d), *getattr(node, "decorator_list", [])]
        own = {arg.arg for arg in every if arg} | set(bound(body))
        return inner - own | {name for part in outside for name in _free(part)}
    return inner
