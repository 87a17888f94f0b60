"""The imports of a file, and which of them transformers takes for requirements when the file comes from the Hub."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from hfspeed.lint.classes import last_name
from hfspeed.lint.facts import Facts
from hfspeed.lint.nodes import calls_in

PRESENT = frozenset({
    *sys.stdlib_module_names,
    *("filelock", "huggingface_hub", "numpy", "packaging", "regex", "safetensors", "tokenizers", "torch", "tqdm"),
    *("transformers", "yaml"),
})  # fmt: skip
"""What is there wherever a model is loaded: Python, transformers with torch, and what they need."""


def required(facts: Facts) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Every absolute import that counts as a requirement, with the package it asks for.

    Those in a try are left out, and those under a question such as ``if is_flash_attn_2_available():``; those in
    functions and under TYPE_CHECKING are not.
    """
    waiting: list[ast.AST] = [facts.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Try) or (isinstance(node, ast.If) and _asks(node.test)):
            continue
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node, (node.module or "").partition(".")[0]
        elif isinstance(node, ast.stmt | ast.Module | ast.ExceptHandler | ast.match_case):
            waiting += list(ast.iter_child_nodes(node))


def _asks(test: ast.expr) -> bool:
    names = (last_name(call.func) for call in calls_in(test))
    return any(name.startswith("is_") and "available" in name for name in names)
