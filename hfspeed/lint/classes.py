"""One class as it is written: its bases, methods and the names that are assigned on its instances."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hfspeed.lint.nodes import calls_in, walk

ENDS = frozenset(
    {"ABC", "GenerationMixin", "Generic", "GradientCheckpointingLayer", "Module", "PreTrainedModel", "object"}
)
"""Bases from outside the file that add no children."""
NAMED = frozenset({"add_module", "register_buffer", "register_module", "register_parameter", "setattr"})


@dataclass(frozen=True, eq=False)
class ClassFacts:
    """One class as it is written, without what it inherits."""

    node: ast.ClassDef

    @property
    def name(self) -> str:
        """The class's name."""
        return self.node.name

    @cached_property
    def bases(self) -> tuple[str, ...]:
        """The last part of every base's name: ``Module`` for ``nn.Module``."""
        return tuple(last_name(base) for base in self.node.bases)

    @cached_property
    def methods(self) -> dict[str, ast.FunctionDef]:
        """The functions defined in the class, by name."""
        return {node.name: node for node in self.node.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def assigned(self) -> dict[str, list[ast.expr]]:
        """What is assigned to each name on an instance: ``self.x = …`` in any method, or ``x = …`` in the class."""
        found: dict[str, list[ast.expr]] = {}
        for name, value in _class_level(self.node):
            found.setdefault(name, []).append(value)
        for name, value in _instance_level(self.node):
            found.setdefault(name, []).append(value)
        return found

    @cached_property
    def names_made_at_run_time(self) -> bool:
        """Whether children get names that cannot be read: ``setattr(self, name, …)`` and its like."""
        return any(last_name(call.func) in NAMED and _named(call) is None for call in calls_in(self.node)) or any(
            isinstance(node, ast.Attribute) and node.attr == "__dict__" for node in walk(self.node)
        )


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name, ``Module`` for ``nn.Module``; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _class_level(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    yield target.id, statement.value
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement.value or statement.annotation


def _instance_level(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for inner in walk(node):
        if isinstance(inner, ast.Assign):
            for target in inner.targets:
                for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                    if isinstance(one, ast.Attribute) and last_name(one.value) == "self":
                        yield one.attr, inner.value
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Attribute) and inner.value is not None:
            yield inner.target.attr, inner.value
        if isinstance(inner, ast.Call) and last_name(inner.func) in NAMED and (named := _named(inner)):
            yield named, inner


def _named(call: ast.Call) -> str | None:
    """The name that ``setattr(self, "x", …)`` or ``self.add_module("x", …)`` gives, when it is written out."""
    position = 1 if last_name(call.func) == "setattr" else 0
    if len(call.args) > position:
        name = call.args[position]
    else:
        name = next((keyword.value for keyword in call.keywords if keyword.arg == "name"), ast.Constant(None))
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
