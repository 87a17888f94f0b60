"""Taking an expression out of a method with everything that only led to it."""

from __future__ import annotations

import ast

from hfspeed.pattern.edit import Change
from hfspeed.source.effects import bound, written
from hfspeed.source.recovered import Recovered, is_elif
from hfspeed.source.unread import unread


class Tangled(Exception):  # noqa: N818  it is what was found, not what failed
    """Something that would have to go has another purpose; ``node`` says what."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node
        super().__init__(ast.unparse(node).split("\n")[0])


def prune(recovered: Recovered, first: ast.expr, last: ast.expr, kept: str) -> list[Change]:
    """Changes that leave ``kept`` in place of ``last``, and take away what leads from ``first`` to it.

    Names that held something on the way become ``None`` where they are still handed on.

    Raises:
        Tangled: a statement on the way does something else as well.
    """
    walk = _Walk(recovered, first, last)
    walk.block(recovered.tree.body)
    if not walk.met:
        raise Tangled(last)
    read = {n.id for n in ast.walk(ast.parse(kept, mode="eval")) if isinstance(n, ast.Name)}
    walk.unasked(read)
    walk.spare(read)
    gone = [Change("erase", stmt) for stmt in walk.outermost()]
    nothing = [Change("replace", name, "None") for name in walk.nothing]
    return [Change("replace", last, kept), *gone, *nothing]


class _Walk:
    """The statements in order, and at each the names that hold something that will no longer be computed."""

    def __init__(self, recovered: Recovered, first: ast.expr, last: ast.expr) -> None:
        self.recovered, self.first, self.last = recovered, first, last
        self.lost: set[str] = set()
        self.gone: list[ast.stmt] = []
        self.nothing: list[ast.Name] = []
        self.met = False

    def block(self, stmts: list[ast.stmt]) -> None:
        """Statements that run one after the other."""
        for stmt in stmts:
            self.stmt(stmt)

    def stmt(self, stmt: ast.stmt) -> None:
        """One statement."""
        if isinstance(stmt, ast.If):
            self.branch(stmt)
        elif _holds(stmt, self.last):
            self.meet(stmt)
        elif isinstance(stmt, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self.assign(stmt)
        elif self.changes_lost(stmt):
            self.gone.append(stmt)
        elif isinstance(stmt, ast.Return | ast.Expr):
            if _holds(stmt, self.first):
                raise Tangled(stmt)
            self.hand_on(stmt, self.mentions(stmt))
        elif isinstance(stmt, ast.Assert) and self.leads(stmt):
            self.gone.append(stmt)
        elif self.leads(stmt):
            raise Tangled(stmt)

    def changes_lost(self, stmt: ast.stmt) -> bool:
        """Whether it only changes a lost value in place: ``scores.masked_fill_(mask, low)``."""
        match stmt:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr))):
                return name in self.lost and attr.endswith("_") and not _holds(stmt, self.first)
        return False

    def branch(self, stmt: ast.If) -> None:
        """An ``if``: it goes with what it asks about, or when nothing is left in it."""
        if self.leads(stmt.test):
            self.drop(stmt)
            return
        start, before = len(self.gone), set(self.lost)
        self.block(stmt.body)
        after, self.lost = self.lost, before
        self.block(stmt.orelse)
        self.lost |= after
        inside = [*stmt.body, *stmt.orelse]
        if all(any(one is other for other in self.gone[start:]) for one in inside) and not is_elif(
            self.recovered, stmt
        ):
            self.gone[start:] = [stmt]

    def drop(self, stmt: ast.If) -> None:
        """An ``if`` about scores: checks and assignments, no more."""
        if is_elif(self.recovered, stmt) or _holds(stmt, self.last):
            raise Tangled(stmt)
        for inner in ast.walk(stmt):
            if isinstance(inner, ast.Return | ast.For | ast.While | ast.With | ast.Try | ast.Expr):
                raise Tangled(inner)
        self.lost |= set(bound([stmt]))
        self.gone.append(stmt)

    def meet(self, stmt: ast.stmt) -> None:
        """The statement with the expression that stays in another form."""
        if not isinstance(stmt, ast.Assign | ast.AnnAssign | ast.Return):
            raise Tangled(stmt)
        self.met = True
        inside = {id(node) for node in ast.walk(self.last)}
        self.hand_on(stmt, [name for name in self.mentions(stmt) if id(name) not in inside])
        self.lost -= set(bound([stmt]))

    def hand_on(self, stmt: ast.stmt, names: list[ast.Name]) -> None:
        """Names that become ``None``; something that is computed with cannot be."""
        for name in names:
            if isinstance(self.recovered.parent_of(name), ast.Attribute | ast.Subscript | ast.BinOp | ast.UnaryOp):
                raise Tangled(stmt)
        self.nothing += names

    def assign(self, stmt: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        """An assignment goes if what it assigns is lost."""
        names = set(bound([stmt]))
        if not self.leads(stmt):
            self.lost -= names
            return
        if self.met and self.only_lists(stmt):  # weights beside other results, such as `outputs += (weights,)`
            self.hand_on(stmt, self.mentions(stmt))
            self.lost -= names
            return
        if not all(isinstance(n, ast.Name | ast.Tuple | ast.expr_context) for t in _targets(stmt) for n in ast.walk(t)):
            raise Tangled(stmt)
        if self.met and not _holds(stmt, self.first):
            changed = written([stmt], self.recovered.tree.body) - names
            if changed:
                raise Tangled(stmt)
        self.lost |= names
        self.gone.append(stmt)

    def only_lists(self, stmt: ast.stmt) -> bool:
        """Whether every lost name stands in a tuple or list with or beside something else."""
        parents = [self.recovered.parent_of(name) for name in self.mentions(stmt)]
        return bool(parents) and all(isinstance(one, ast.Tuple | ast.List) for one in parents)

    def unasked(self, read: set[str]) -> None:
        """Questions about what only led to what is gone go too, such as whether there is a mask."""
        taken = {n.id for one in self.gone for n in ast.walk(one) if isinstance(n, ast.Name)} - read
        checks = [n for n in ast.walk(self.recovered.tree) if isinstance(n, ast.Assert | ast.If) and self.asks(n)]
        quiet = {id(n) for one in [*self.gone, *checks, self.last] for n in ast.walk(one)}
        for stmt in (one for one in checks if not any(one is other for other in self.gone)):
            about = {n.id for n in ast.walk(stmt) if isinstance(n, ast.Name)} & taken
            reads = [n for n in ast.walk(self.recovered.tree) if isinstance(n, ast.Name) and n.id in about]
            if about and all(id(n) in quiet for n in reads) and not is_elif(self.recovered, stmt):
                self.gone.append(stmt)

    def asks(self, stmt: ast.stmt) -> bool:
        """Whether it only asks and complains, or does what is gone."""
        if any(stmt is one for one in self.gone) or isinstance(stmt, ast.Assert | ast.Raise):
            return True
        return isinstance(stmt, ast.If) and all(self.asks(one) for one in (*stmt.body, *stmt.orelse))

    def spare(self, read: set[str]) -> None:
        """Assignments that only served what is gone go as well, unless the new text reads them."""
        found = True
        while found:
            found = False
            gone = [*self.gone, self.last, *self.nothing]
            names = {n.id for one in gone for n in ast.walk(one) if isinstance(n, ast.Name)} - read
            for stmt in ast.walk(self.recovered.tree):
                if not isinstance(stmt, ast.Assign | ast.AnnAssign) or any(stmt is one for one in self.gone):
                    continue
                mine = set(bound([stmt]))
                if not mine or not mine <= names or _holds(stmt, self.last):
                    continue
                if self.quiet(stmt) and unread(self.recovered, stmt, *gone):
                    self.gone.append(stmt)
                    found = True

    def quiet(self, stmt: ast.stmt) -> bool:
        """Whether it does nothing but bind names."""
        return written([stmt]) <= set(bound([stmt])) and not any(
            isinstance(n, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for n in ast.walk(stmt)
        )

    def outermost(self) -> list[ast.stmt]:
        """What is gone, without what lies inside of it."""
        return [one for one in self.gone if not any(one is not other and _holds(other, one) for other in self.gone)]

    def leads(self, node: ast.AST) -> bool:
        """Whether it holds the first expression or reads a lost name."""
        return _holds(node, self.first) or bool(self.mentions(node))

    def mentions(self, node: ast.AST) -> list[ast.Name]:
        """Where ``node`` reads lost names."""
        found = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.lost]
        own = isinstance(node, ast.AugAssign)
        return [n for n in found if own or isinstance(n.ctx, ast.Load)]


def _targets(stmt: ast.Assign | ast.AnnAssign | ast.AugAssign) -> list[ast.expr]:
    return stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]


def _holds(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))
