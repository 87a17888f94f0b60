"""The plans in a configuration file as text: at which line each entry stands, and the file with other plans in it."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst

from hfspeed.plan.styles import KINDS, StylePlans, attribute


@dataclass(frozen=True)
class Declared:
    """Where a class, or one of its parents, says a plan.

    Attributes:
        file: the file of that class.
        line: of the assignment; 1 where nothing is found.
        entries: the line of each key of the dictionary, as far as it is written out.
    """

    file: Path
    line: int
    entries: Mapping[str, int]

    def at(self, key: str) -> int:
        """The line of an entry, else that of the whole plan."""
        return self.entries.get(key, self.line)


def declared(config_class: type[Any], kind: str) -> Declared | None:
    """Where a configuration's plan of one kind is written; ``None`` if neither it nor a parent has one."""
    for owner in config_class.__mro__:
        if not vars(owner).get(attribute(kind)):
            continue
        try:
            file = Path(inspect.getsourcefile(owner) or "")
            tree = ast.parse(file.read_text("utf-8"))
        except (TypeError, OSError, SyntaxError):
            return Declared(Path(owner.__module__), 1, {})
        return _found(tree, owner.__name__, attribute(kind), file)
    return None


def place_of(config_class: type[Any]) -> Declared:
    """Where a configuration class itself is written."""
    try:
        file, (_, line) = Path(inspect.getsourcefile(config_class) or ""), inspect.getsourcelines(config_class)
    except (TypeError, OSError):
        return Declared(Path(config_class.__module__), 1, {})
    return Declared(file, line, {})


def _found(tree: ast.Module, name: str, wanted: str, file: Path) -> Declared:
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name]
    for node in (inner for owner in classes for inner in owner.body):
        targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == wanted for target in targets):
            value = getattr(node, "value", None)
            pairs = zip(value.keys, value.values, strict=True) if isinstance(value, ast.Dict) else ()
            lines = {k.value: k.lineno for k, _ in pairs if isinstance(k, ast.Constant) and isinstance(k.value, str)}
            return Declared(file, node.lineno, lines)
    return Declared(file, classes[0].lineno if classes else 1, {})


def with_plans(text: str, class_name: str, plans: StylePlans) -> str:
    """The file with these plans in the class; what says the same already stays as it is, comments and all.

    A kind of plan that is empty is left alone. New lines are indented, quoted and ended as the file's own are.

    Raises:
        ValueError: the file does not parse, or has no such class.
    """
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise ValueError(f"line {error.raw_line}: it does not parse") from error
    writer = _Writer(module, class_name, plans, '"' if text.count('"') >= text.count("'") else "'")
    changed = module.visit(writer)
    if not writer.met:
        raise ValueError(f"it has no class {class_name}")
    return changed.code


class _Writer(cst.CSTTransformer):
    """Puts plans into one class."""

    def __init__(self, module: cst.Module, class_name: str, plans: StylePlans, quote: str) -> None:
        super().__init__()
        self.module, self.class_name, self.plans, self.quote = module, class_name, plans, quote
        self.met = False

    def leave_ClassDef(  # noqa: N802  libcst's name
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.ClassDef:
        """Exchange or add the assignments."""
        if original_node.name.value != self.class_name or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        self.met = True
        indent = updated_node.body.indent or self.module.default_indent
        body = list(updated_node.body.body)
        for kind in KINDS:
            plan = self.plans.of(kind)
            if plan:
                body = self._placed(body, attribute(kind), plan, indent)
        return updated_node.with_changes(body=updated_node.body.with_changes(body=body))

    def _placed(
        self, body: list[cst.BaseStatement], name: str, plan: Mapping[str, Any], indent: str
    ) -> list[cst.BaseStatement]:
        for number, statement in enumerate(body):
            old = _assigned(statement, name)
            if old is None:
                continue
            if _value(old) == dict(plan):
                return body
            fresh = self._dictionary(plan, indent, old if isinstance(old, cst.Dict) else None)
            return [*body[:number], _exchanged(statement, old, fresh), *body[number + 1 :]]
        assign = cst.Assign([cst.AssignTarget(cst.Name(name))], self._dictionary(plan, indent, None))
        at = _after_names(body)
        return [*body[:at], cst.SimpleStatementLine([assign]), *body[at:]]

    def _dictionary(self, plan: Mapping[str, Any], indent: str, old: cst.Dict | None) -> cst.Dict:
        kept = {_value(e.key): e for e in old.elements if isinstance(e, cst.DictElement)} if old else {}
        inner = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))
        last = cst.ParenthesizedWhitespace(indent=True)
        elements = []
        for number, (key, value) in enumerate(plan.items()):
            same = kept.get(key)
            end = last if number == len(plan) - 1 else inner
            element = same if same is not None and _value(same.value) == value else self._element(key, value)
            comma = element.comma
            noted = isinstance(comma, cst.Comma) and isinstance(comma.whitespace_after, cst.ParenthesizedWhitespace)
            line = comma.whitespace_after.first_line if noted else cst.TrailingWhitespace()  # type: ignore[union-attr]
            elements.append(element.with_changes(comma=cst.Comma(whitespace_after=end.with_changes(first_line=line))))
        return cst.Dict(elements, lbrace=cst.LeftCurlyBrace(whitespace_after=inner))

    def _element(self, key: str, value: Any) -> cst.DictElement:
        return cst.DictElement(cst.SimpleString(f"{self.quote}{key}{self.quote}"), self._expression(value))

    def _expression(self, value: Any) -> cst.BaseExpression:
        if isinstance(value, str):
            return cst.SimpleString(f"{self.quote}{value}{self.quote}")
        items = [cst.Element(self._expression(item)) for item in value]
        return cst.List(items) if isinstance(value, list) else cst.Tuple(items)


def _assigned(statement: cst.BaseStatement, name: str) -> cst.BaseExpression | None:
    """What a statement assigns to ``name``."""
    for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
        targets = [t.target for t in small.targets] if isinstance(small, cst.Assign) else []
        targets += [small.target] if isinstance(small, cst.AnnAssign) else []
        if any(isinstance(t, cst.Name) and t.value == name for t in targets):
            return small.value if isinstance(small, cst.Assign | cst.AnnAssign) else None
    return None


def _exchanged(statement: cst.BaseStatement, old: cst.BaseExpression, fresh: cst.Dict) -> cst.BaseStatement:
    found = statement.deep_replace(old, fresh)
    assert isinstance(found, cst.BaseStatement)
    return found


def _value(node: cst.BaseExpression) -> Any:
    try:
        return ast.literal_eval(cst.Module([]).code_for_node(node))
    except (ValueError, SyntaxError):
        return None


def _after_names(body: list[cst.BaseStatement]) -> int:
    """Behind the plain assignments that stand before the first field, method or class; else behind the docstring."""
    at = 0
    for number, statement in enumerate(body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        small = statement.body[0]
        if isinstance(small, cst.Assign) or (number == 0 and isinstance(small, cst.Expr)):
            at = number + 1
        else:
            break
    return at
