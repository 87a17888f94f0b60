"""The plans in a configuration file as text: at which line each entry stands, and the file with other plans in it."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
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
    writer = _Writer(module, class_name, plans, _quote(text))
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
        notes = _Notes(old)
        inner = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))
        elements = []
        keys = [*plan, None]  # behind the last entry stands what stood before the closing brace
        for (key, value), following in zip(plan.items(), keys[1:], strict=True):
            element = self._element(key, value, kept.get(key))
            end = inner if following is not None else cst.ParenthesizedWhitespace(indent=True)
            space = end.with_changes(first_line=notes.beside(key), empty_lines=notes.above(following))
            elements.append(element.with_changes(comma=cst.Comma(whitespace_after=space)))
        begin = inner.with_changes(first_line=notes.opening, empty_lines=notes.above(keys[0]))
        return cst.Dict(elements, lbrace=cst.LeftCurlyBrace(whitespace_after=begin))

    def _element(self, key: Any, value: Any, old: cst.DictElement | None) -> cst.DictElement:
        """One entry; of an old one the key stays, and the value if it says the same, else its quotes."""
        if old is None:
            return cst.DictElement(cst.SimpleString(f"{self.quote}{key}{self.quote}"), self._expression(value))
        if _value(old.value) == value:
            return old
        quote = self.quote
        theirs = next((one for one in (old.value, old.key) if isinstance(one, cst.SimpleString)), None)
        self.quote = theirs.quote if theirs is not None and len(theirs.quote) == 1 else quote
        changed = old.with_changes(value=self._expression(value))
        self.quote = quote
        return changed

    def _expression(self, value: Any) -> cst.BaseExpression:
        if isinstance(value, str):
            return cst.SimpleString(f"{self.quote}{value}{self.quote}")
        items = [cst.Element(self._expression(item)) for item in value]
        return cst.List(items) if isinstance(value, list) else cst.Tuple(items)


class _Notes:
    """The comments in a dictionary: beside each entry and above it, and those above the closing brace."""

    def __init__(self, old: cst.Dict | None) -> None:
        self._beside: dict[Any, cst.TrailingWhitespace] = {}
        self._above: dict[Any, Sequence[cst.EmptyLine]] = {}
        self.opening = cst.TrailingWhitespace()
        if old is None:
            return
        entries = [_value(e.key) if isinstance(e, cst.DictElement) else None for e in old.elements]
        spaces = [e.comma.whitespace_after if isinstance(e.comma, cst.Comma) else None for e in old.elements]
        if spaces and not isinstance(spaces[-1], cst.ParenthesizedWhitespace):
            spaces[-1] = old.rbrace.whitespace_before  # no comma behind the last entry, or nothing behind the comma
        start = old.lbrace.whitespace_after
        if isinstance(start, cst.ParenthesizedWhitespace):
            self.opening = start.first_line
            self._above[entries[0] if entries else None] = start.empty_lines
        for key, following, space in zip(entries, [*entries[1:], None], spaces, strict=True):
            if isinstance(space, cst.ParenthesizedWhitespace):
                self._beside[key], self._above[following] = space.first_line, space.empty_lines

    def beside(self, key: Any) -> cst.TrailingWhitespace:
        """What stands behind the entry on its line."""
        return self._beside.get(key, cst.TrailingWhitespace())

    def above(self, key: Any) -> Sequence[cst.EmptyLine]:
        """The lines between the entry before and this one; of ``None``, those before the closing brace."""
        return self._above.get(key, ())


def _quote(text: str) -> str:
    """The quotes that most of the file's short strings have."""
    found = [token.string.lstrip("rRbBuUfF") for token in _tokens(text) if token.type == tokenize.STRING]
    short = [one[0] for one in found if not one.startswith(('"""', "'''"))]
    return "'" if short.count("'") > short.count('"') else '"'


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(text).readline)


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
