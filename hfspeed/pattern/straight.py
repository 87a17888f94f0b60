"""Whether the values of some expressions reach another one in a straight line, and through which assignments."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from hfspeed.graph.nodes import CASTS, SPLITS
from hfspeed.pattern.site import Site
from hfspeed.source.effects import bound, written
from hfspeed.source.recovered import Recovered

_FACTS = {"dtype", "device", "shape"}


class Crooked(Exception):  # noqa: N818  it is what was found, not what failed
    """Something that the recorded run does not show may have a hand in the value."""


def line_to(site: Site, end: ast.expr, sources: Sequence[ast.expr]) -> list[ast.stmt]:
    """The assignments through which ``sources`` reach ``end``, all in the block of ``end``.

    Everything that is evaluated on the way was recorded as an operation of its own, and nothing in between can
    write to what is handed on: so the recorded dataflow holds in every run, whatever branches it takes.

    Raises:
        Crooked: it is not so; says at what.
    """
    walk = _Walk(site, end, sources)
    walk.visit(end, next(i for i, stmt in enumerate(walk.block) if stmt is walk.stmt))
    return walk.found


def before(recovered: Recovered, stmt: ast.stmt, node: ast.AST, spared: Sequence[ast.expr]) -> list[ast.AST]:
    """Parts of ``stmt`` that are evaluated before ``node`` is, with ``spared`` expressions left out of them."""
    found: list[ast.AST] = []
    memo = {id(one): ast.Constant(None) for one in spared}
    child: ast.AST | None = node
    while child is not None and child is not stmt:
        parent = recovered.parent_of(child)
        for part in ast.iter_child_nodes(parent) if parent is not None else ():
            target = isinstance(getattr(part, "ctx", None), ast.Store)
            if isinstance(part, ast.expr | ast.keyword) and not target and _ends_before(part, child):
                found.append(copy.deepcopy(part, dict(memo)))
        child = parent
    return found


def _ends_before(one: ast.expr | ast.keyword, other: ast.AST) -> bool:
    start = (getattr(other, "lineno"), getattr(other, "col_offset"))  # noqa: B009  not on every AST
    return (one.end_lineno or 0, one.end_col_offset or 0) <= start


class _Walk:
    """From an expression back to the sources, through names and what was last assigned to them."""

    def __init__(self, site: Site, end: ast.expr, sources: Sequence[ast.expr]) -> None:
        self.recovered = site.recovered
        self.sources = sources
        self.stmt = site.recovered.statement_of(end)
        self.block = site.recovered.block_of(self.stmt)
        self.recorded = {id(site.expression(node)) for node in site.graph.nodes}
        tree = site.recovered.tree
        arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        self.local = (arguments | set(bound(tree.body))) - {site.recovered.self_name}
        self.end = end
        self.found: list[ast.stmt] = []

    def visit(self, node: ast.expr, at: int) -> None:
        """Follow ``node``, which statement ``at`` evaluates."""
        if any(node is source for source in self.sources) or isinstance(node, ast.Constant):
            return
        match node:
            case ast.Name(id=name):
                if name in self.local:
                    self.name(name, at)
            case ast.Attribute(value=value):
                self.visit(value, at)
            case ast.Subscript(value=value, slice=part) if isinstance(part, ast.Constant) or id(node) in self.recorded:
                if any(isinstance(inner, ast.Call | ast.NamedExpr) for inner in ast.walk(part)):
                    raise Crooked(f"`{self.recovered.segment(part)}`")
                self.visit(value, at)
            case ast.UnaryOp(operand=ast.Constant()):
                pass
            case ast.Tuple(elts=values) | ast.List(elts=values):
                for value in values:
                    self.visit(value, at)
            case ast.BinOp(left=left, right=right) if id(node) in self.recorded:
                self.visit(left, at)
                self.visit(right, at)
            case ast.Call() if id(node) in self.recorded:
                self.call(node, at)
            case _:
                raise Crooked(f"`{self.recovered.segment(node)}`")

    def call(self, node: ast.Call, at: int) -> None:
        """A recorded call; of casts and cuts, only what is cast or cut matters."""
        self.visit(node.func, at)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        method = isinstance(node.func, ast.Attribute) and not self._module(node.func.value)
        if name in CASTS | SPLITS and method:
            return
        for value in [*node.args, *(keyword.value for keyword in node.keywords)]:
            if not (isinstance(value, ast.Attribute) and value.attr in _FACTS):
                self.visit(value, at)

    def _module(self, node: ast.expr) -> bool:
        """``torch`` or ``F``: a name that is no local."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.local

    def name(self, name: str, at: int) -> None:
        """The last assignment to ``name`` before statement ``at``, if nothing touches it since."""
        index = next((i for i in range(at - 1, -1, -1) if name in set(bound([self.block[i]]))), None)
        if index is None:
            raise Crooked(f"`{name}` does not come from the same block")
        stmt = self.block[index]
        value = _value_of(stmt, name)
        if value is None:
            raise Crooked(f"`{name}` is not assigned plainly")
        since: list[ast.AST] = [*self.block[index + 1 : at]]
        if self.block[at] is self.stmt:
            since += before(self.recovered, self.stmt, self.end, self.sources)
        if name in written(since, self.recovered.tree.body):
            raise Crooked(f"`{name}` may be written to on the way")
        if not any(stmt is one for one in self.found):
            self.found.append(stmt)
        self.visit(value, index)


def _value_of(stmt: ast.stmt, name: str) -> ast.expr | None:
    """The expression that a plain assignment gives to ``name``; the whole one if it is unpacked."""
    target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
    if isinstance(stmt, ast.AnnAssign):
        target = stmt.target
    value = stmt.value if isinstance(stmt, ast.Assign | ast.AnnAssign) else None
    if isinstance(target, ast.Name):
        return value
    if not isinstance(target, ast.Tuple) or not all(isinstance(one, ast.Name) for one in target.elts):
        return None
    if isinstance(value, ast.Tuple):
        pairs = [(one.id, two) for one, two in zip(target.elts, value.elts, strict=False) if isinstance(one, ast.Name)]
        found = [two for one, two in pairs if one == name]
        same = len(target.elts) == len(value.elts) and not any(isinstance(v, ast.Starred) for v in value.elts)
        return found[0] if same and len(found) == 1 else None
    return value
