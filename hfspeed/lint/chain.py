"""Follows a value through the statements of one function, from where it is made to where it is read."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from hfspeed.lint.classes import last_name
from hfspeed.lint.nodes import walk

CASTS = frozenset({"contiguous", "double", "float", "half", "to", "type", "type_as"})
ABOUT = frozenset({"device", "dtype", "shape", "size"})
"""Asked of a value without reading it."""
FILLS = frozenset({"masked_fill", "masked_fill_"})


class OtherForm(Exception):  # noqa: N818  said of a form that is not known
    """It is written in another way than those that are known."""


@dataclass
class Chain:
    """The way from a product to where it is read.

    Attributes:
        names: those that hold it.
        factors: what it was multiplied and divided by, with the sign.
        added: what was added to it.
    """

    names: set[str] = field(default_factory=set)
    factors: list[tuple[str, ast.expr]] = field(default_factory=list)
    added: list[ast.expr] = field(default_factory=list)

    def follow(self, statement: ast.stmt) -> None:
        """Learn from a statement between the products."""
        if isinstance(statement, ast.If):
            before = list(self.factors)
            for inner in [*statement.body, *statement.orelse]:
                self.follow(inner)
            if self.factors != before:
                raise OtherForm
            return
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            if statement.target.id in self.names:
                self.factor(ast.BinOp(statement.target, statement.op, statement.value))
            return
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            return
        if self.inside(statement.value):
            self.factor(statement.value)
            self.names.add(target(statement))

    def core(self, node: ast.expr) -> bool:
        """Whether ``node`` is the value itself, or a name that holds it."""
        return isinstance(node, ast.Name) and node.id in self.names

    def factor(self, node: ast.expr) -> None:
        """Go down from ``node`` to what is known, and note every factor on the way."""
        if self.core(node):
            return
        if isinstance(node, ast.BinOp):
            self._operation(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        else:
            raise OtherForm

    def _operation(self, node: ast.BinOp) -> None:
        left = self.inside(node.left)
        inner, other = (node.left, node.right) if left else (node.right, node.left)
        self.factor(inner)
        if isinstance(node.op, ast.Add) or (isinstance(node.op, ast.Sub) and left):
            self.added.append(other)
        elif isinstance(node.op, ast.Mult):
            self.factors.append(("*", other))
        elif isinstance(node.op, ast.Div) and left:
            self.factors.append(("/", other))
        else:
            raise OtherForm

    def _call(self, node: ast.Call) -> None:
        name = last_name(node.func)
        if isinstance(node.func, ast.Attribute) and name in CASTS | FILLS and self.inside(node.func.value):
            self.factor(node.func.value)
        elif name in {"where", "max", "maximum", "masked_fill"} and sum(map(self.inside, node.args)) == 1:
            self.factor(next(one for one in node.args if self.inside(one)))
        else:
            raise OtherForm

    def inside(self, node: ast.expr) -> bool:
        """Whether the value is read in ``node``."""
        parts = walk(node)
        about = {part.value for part in parts if isinstance(part, ast.Attribute) and part.attr in ABOUT}
        return any(isinstance(part, ast.expr) and part not in about and self.core(part) for part in parts)


class FromProduct(Chain):
    """A chain that begins with the product of query and key."""

    product: ast.expr | None = None

    def core(self, node: ast.expr) -> bool:
        """Whether it is the value itself, or a name that holds it."""
        return node is self.product or super().core(node)


class FromSoftmax(Chain):
    """A chain that begins with the softmax; only dropout and casts may come after it."""

    softmax: ast.Call | None = None
    dropout: str | None = None

    def core(self, node: ast.expr) -> bool:
        """Whether it is the value itself, or a name that holds it."""
        return node is self.softmax or super().core(node)

    def _operation(self, node: ast.BinOp) -> None:  # noqa: ARG002
        raise OtherForm

    def _call(self, node: ast.Call) -> None:
        if "drop" not in last_name(node.func):
            super()._call(node)
            return
        self.factor(node.args[0])
        rate = node.args[1] if len(node.args) > 1 else next((k.value for k in node.keywords if k.arg == "p"), None)
        if isinstance(node.func, ast.Attribute) and last_name(node.func.value) == "self":
            self.dropout = f"{ast.unparse(node.func)}.p"
        elif rate is not None:
            self.dropout = ast.unparse(rate)
        else:
            raise OtherForm


def target(statement: ast.stmt) -> str:
    """The one name that a statement assigns.

    Raises:
        OtherForm: it assigns something else.
    """
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    if len(targets) == 1 and isinstance(targets[0], ast.Name):
        return targets[0].id
    raise OtherForm


def only_sizes(statement: ast.stmt, heads: set[str]) -> bool:
    """``length = key.shape[-2]``, or more of them at once: nothing but sizes of heads, and what ``self`` has."""
    if not isinstance(statement, ast.Assign):
        return False
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else [statement.value]
    return all(_size(value, heads) for value in values)


def _size(value: ast.expr, heads: set[str]) -> bool:
    if isinstance(value, ast.Constant) or _kept(value):
        return True
    inner = value.value if isinstance(value, ast.Subscript) else value
    inner = inner.func if isinstance(inner, ast.Call) else inner
    plain = isinstance(inner, ast.Attribute) and inner.attr in ("shape", "size")
    return plain and isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in heads


def _kept(value: ast.expr) -> bool:
    """``self.config.head_dim``."""
    while isinstance(value, ast.Attribute):
        if isinstance(value.value, ast.Name):
            return value.value.id == "self"
        value = value.value
    return False
