"""What a compiled decoding step runs: the forwards of a causal language model without what is only for training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hfspeed.lint.classes import ClassFacts, last_name
from hfspeed.lint.facts import Facts
from hfspeed.lint.hops import parts
from hfspeed.lint.nodes import walk

NOT_SERVED = frozenset({
    "gradient_checkpointing", "is_compiling", "is_torchdynamo_compiling", "is_tracing", "labels", "training",
})  # fmt: skip
EAGER = frozenset({"disable", "no_compile"})


def served(facts: Facts) -> Iterator[tuple[ClassFacts, ast.FunctionDef]]:
    """Every function that runs in a forward, once, with a class it runs for."""
    seen: set[ast.FunctionDef] = set()
    for cls in sorted(parts(facts), key=lambda one: one.node.lineno):
        for function in facts.reached(cls):
            if function not in seen and not _left_to_python(function):
                seen.add(function)
                yield cls, function


def runs(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of ``function`` that run when it is served; what stands under ``if self.training`` does not."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If) and _excused(node.test):
            waiting += reversed(node.orelse)
        elif isinstance(node, ast.Assert | ast.Raise):
            continue
        else:
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _excused(test: ast.expr) -> bool:
    return any(last_name(node) in NOT_SERVED for node in walk(test))


def _left_to_python(function: ast.FunctionDef) -> bool:
    """Whether a decorator keeps the compiler away: ``@torch.compiler.disable``."""
    decorators = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return any(last_name(one) in EAGER for one in decorators)
