"""What can be read in one file without running it: its classes, their children and what their forwards reach."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.disk import Disk
from hfspeed.lint.nodes import calls_in, walk
from hfspeed.refusal import Place

INTERFACE = frozenset({"ALL_ATTENTION_FUNCTIONS", "AttentionInterface"})
CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel")
CACHES = frozenset({"cache", "kv_cache", "layer_past", "past_key_value", "past_key_values"})

LONGEST = 100
"""More classes than any derives from; a file may pretend otherwise, and is not worth minutes."""


@dataclass(frozen=True, eq=False)
class Facts:
    """One parsed file.

    Attributes:
        path: where it lies; its folder may be looked at.
        text: its source.
        tree: its syntax tree.
        disk: where its neighbours are read.
    """

    path: Path
    text: str
    tree: ast.Module
    disk: Disk = field(default_factory=Disk)

    @cached_property
    def lines(self) -> list[str]:
        """The lines, without their ends, as the parser counts them: a form feed ends none."""
        return self.text.split("\n")

    @cached_property
    def classes(self) -> dict[str, ClassFacts]:
        """The classes at the top of the file, by name; a later one of the same name wins, as at run time."""
        return {node.name: ClassFacts(node) for node in _top(self.tree.body) if isinstance(node, ast.ClassDef)}

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top of the file, by name."""
        return {node.name: node for node in _top(self.tree.body) if isinstance(node, ast.FunctionDef)}

    @cached_property
    def causal(self) -> list[ClassFacts]:
        """The classes that are causal language models by their name, else those that can generate."""
        named = [cls for cls in self.classes.values() if cls.name.endswith(CAUSAL_ENDINGS)]
        generating = [cls for cls in self.classes.values() if "GenerationMixin" in cls.bases]
        return named or [cls for cls in generating if "ConditionalGeneration" not in cls.name]

    @cached_property
    def _lineages(self) -> dict[ClassFacts, list[ClassFacts]]:
        return {}

    @cached_property
    def _reached(self) -> dict[ClassFacts, list[ast.FunctionDef]]:
        return {}

    def lineage(self, cls: ClassFacts) -> list[ClassFacts]:
        """``cls`` and the classes of this file that it derives from, nearest first."""
        if cls not in self._lineages:
            found: dict[ClassFacts, None] = {}
            waiting = [cls]
            while waiting and len(found) < LONGEST:
                one = waiting.pop()
                if one not in found:  # a base that derives from it was given its name later
                    found[one] = None
                    waiting += [self.classes[base] for base in reversed(one.bases) if base in self.classes]
            self._lineages[cls] = list(found)
        return self._lineages[cls]

    def method(self, cls: ClassFacts, name: str) -> ast.FunctionDef | None:
        """The method ``name`` of ``cls``, its own or from a class of this file."""
        return next((one.methods[name] for one in self.lineage(cls) if name in one.methods), None)

    def reached(self, cls: ClassFacts) -> list[ast.FunctionDef]:
        """``forward`` of ``cls`` and what it calls in this file: methods on ``self`` and plain functions."""
        if cls in self._reached:
            return self._reached[cls]
        found = self._reached[cls] = []
        waiting = [self.method(cls, "forward")]
        while waiting:
            function = waiting.pop()
            if function is None or function in found:
                continue
            found.append(function)
            waiting += [self.called(cls, call) for call in calls_in(function)]
        return found

    def decodes(self, cls: ClassFacts) -> bool:
        """Whether ``cls`` keeps keys and values: it takes a cache by one of its usual names, or updates one."""
        forward = self.method(cls, "forward")
        if forward is None:
            return False
        taken = {argument.arg for argument in forward.args.args + forward.args.kwonlyargs}
        return bool(taken & CACHES) or any(_updates(call) for one in self.reached(cls) for call in calls_in(one))

    def called(self, cls: ClassFacts, call: ast.Call) -> ast.FunctionDef | None:
        """The method or function of this file that ``call``, made in ``cls``, runs."""
        if isinstance(call.func, ast.Name):
            return self.functions.get(call.func.id)
        name = on_self(call.func)
        return self.method(cls, name) if name else self._inherited(cls, call.func)

    def _inherited(self, cls: ClassFacts, called: ast.expr) -> ast.FunctionDef | None:
        """The method that ``super().name`` means in ``cls``."""
        owner = called.value if isinstance(called, ast.Attribute) else None
        if not isinstance(called, ast.Attribute) or not isinstance(owner, ast.Call) or last_name(owner.func) != "super":
            return None
        return next((one.methods[called.attr] for one in self.lineage(cls)[1:] if called.attr in one.methods), None)

    def place(self, node: ast.AST) -> Place:
        """Where ``node`` stands; a class or function is its line of ``class`` or ``def``."""
        place = self.span(node)
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            return replace(place, end_line=place.line, end_column=len(self.lines[place.line - 1].rstrip()) + 1)
        return place

    def span(self, node: ast.AST) -> Place:
        """All of ``node``, from its first character to behind its last; decorators are not part of it."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        start = _characters(text, column)
        end_line = getattr(node, "end_lineno", None) or line
        end_text = self.lines[end_line - 1] if end_line <= len(self.lines) else ""
        end = _characters(end_text, getattr(node, "end_col_offset", None) or 0)
        return Place(str(self.path), line, start + 1, end_line, end + 1)


def on_self(node: ast.AST) -> str | None:
    """``x`` of ``self.x``, else ``None``."""
    plain = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if plain and isinstance(node, ast.Attribute) else None


def dispatches(function: ast.AST) -> bool:
    """Whether the attention interface is looked up in ``function``."""
    named = (node for node in walk(function) if isinstance(node, ast.Name | ast.Attribute))
    return any(last_name(node) in INTERFACE for node in named)


def _updates(call: ast.Call) -> bool:
    """``cache.update(key, value, layer)``; a dict's update takes one thing."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "update" and len(call.args) >= 3


def _characters(text: str, column: int) -> int:
    """A column in UTF-8 bytes, as the parser counts, in characters."""
    return len(text.encode()[:column].decode(errors="replace"))


def _top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under a top-level ``if`` or ``try`` included."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from _top(node.body + node.orelse)
        if isinstance(node, ast.Try):
            yield from _top(node.body + [inner for handler in node.handlers for inner in handler.body] + node.orelse)
