"""The hints in a file, read from its text: which decorators are hfspeed's, by whatever name they were imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hfspeed.lint.classes import ClassFacts
from hfspeed.lint.facts import Facts
from hfspeed.lint.nodes import walk

KINDS = frozenset({"attention", "decoder_layers", "experts", "gated_mlp", "norm", "recurrence"})
MODULES = ("hfspeed", "hfspeed.hints", "hfspeed_hints")


def hints_in(facts: Facts) -> Iterator[tuple[ClassFacts, str, ast.Call]]:
    """Every hint that has parentheses: the class below it, its kind, and the call."""
    names = _imported(facts)
    for cls in facts.classes.values():
        for decorator in cls.node.decorator_list if names else ():
            if isinstance(decorator, ast.Call) and (kind := names.get(ast.unparse(decorator.func))):
                yield cls, kind, decorator


def _imported(facts: Facts) -> dict[str, str]:
    """How each hint is spelled in this file: ``{"experts": "experts", "hf.norm": "norm"}``."""
    names: dict[str, str] = {}
    if "hfspeed" not in facts.text:
        return names
    for node in walk(facts.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "") in MODULES:
            names |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in KINDS}
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name in MODULES:
                    names |= {f"{alias.asname or alias.name}.{kind}": kind for kind in KINDS}
    return names
