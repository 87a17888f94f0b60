"""Which names of its module a forward uses."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable, Iterator


def free(text: str) -> frozenset[str]:
    """Names that the definition ``text`` looks up outside itself, builtins and annotations included."""
    found = {name for table in _tables(symtable.symtable(text, "forward", "exec")) for name in _outer(table)}
    return frozenset(found | set(_quoted(ast.parse(text)))) - {"__class__"}


def local(text: str) -> frozenset[str]:
    """Names that the definition or a function in it binds."""
    tables = list(_tables(symtable.symtable(text, "forward", "exec")))
    return frozenset(s.get_name() for t in tables for s in t.get_symbols() if s.is_local() and t.get_type() != "module")


def at_definition(tree: ast.FunctionDef) -> frozenset[str]:
    """Names that decorators and default values look up, so must exist when the module is imported."""
    nodes = [*tree.decorator_list, *tree.args.defaults, *(d for d in tree.args.kw_defaults if d)]
    return frozenset(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))


def identifiers(text: str) -> frozenset[str]:
    """Every identifier in ``text``: names, attributes, parameters, keywords."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "attr", "arg", "name", "asname", "rest"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.add(value)
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
    return frozenset(found)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _outer(table: symtable.SymbolTable) -> Iterator[str]:
    module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or (module and not symbol.is_assigned())):
            yield symbol.get_name()


def _quoted(tree: ast.AST) -> Iterator[str]:
    """Names in annotations that the author wrote as strings."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            for text in _strings(ast.walk(annotation) if isinstance(annotation, ast.AST) else ()):
                try:
                    inner = ast.parse(text, mode="eval")
                except SyntaxError:  # a string that is no type, as in Literal["a b"]
                    continue
                yield from (n.id for n in ast.walk(inner) if isinstance(n, ast.Name))


def _strings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    return (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
