"""Attention written out in one function: a product, a softmax of it, and a product of that."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from hfspeed.lint.classes import last_name
from hfspeed.lint.nodes import calls_in, walk

PRODUCTS = frozenset({"baddbmm", "bmm", "einsum", "matmul"})
KERNELS = re.compile(
    r"_?flash_attention_forward|flash_attn(_\w+)?_(func|kvcache)|flex_attention|memory_efficient_attention"
    r"|scaled_dot_product_attention|sageattn(_\w+)?"
)
ANOTHER = ("gumbel_softmax", "log_softmax")


def attention_in(function: ast.FunctionDef) -> ast.Call | None:
    """The call at which ``function`` computes attention: a kernel's, or the softmax between two products."""
    flow = _Flow(function)
    calls = sorted(calls_in(function), key=lambda call: (call.lineno, call.col_offset))
    for call in calls:
        if KERNELS.fullmatch(last_name(call.func)):
            return call
        weighs = _is_softmax(call) or flow.normalises(call)
        if weighs and flow.comes_from_product(call) and flow.ends_in_product(call):
            return call
    return None


def _is_softmax(call: ast.Call) -> bool:
    """``softmax(x)``, by whatever way to its name, or ``nn.Softmax(dim=-1)(x)``."""
    made = isinstance(call.func, ast.Call) and last_name(call.func.func) == "Softmax"
    name = last_name(call.func)
    return made or (name.endswith("softmax") and name not in ANOTHER)


class _Flow:
    """What flows into what inside one function, by the names of its variables."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.values: dict[str, list[ast.expr]] = {}
        for node in walk(function):
            for target, value in _assignments(node):
                self.values.setdefault(target, []).append(value)

    def normalises(self, call: ast.Call) -> bool:
        """``exp(x - logsumexp(x))``, at once or step by step."""
        if last_name(call.func) != "exp":
            return False
        read = [value for node in walk(call) if isinstance(node, ast.Name) for value in self.values.get(node.id, [])]
        return any(last_name(one.func) == "logsumexp" for part in [call, *read] for one in calls_in(part))

    def comes_from_product(self, softmax: ast.Call) -> bool:
        operands = [*softmax.args[:1], *(keyword.value for keyword in softmax.keywords if keyword.arg == "input")]
        if isinstance(softmax.func, ast.Attribute):
            operands.append(softmax.func.value)
        return any(self._product(operand, set()) for operand in operands)

    def ends_in_product(self, softmax: ast.Call) -> bool:
        """Whether a product reads the softmax, itself or through names that were assigned from it."""
        names: set[str] = set()
        for _ in self.values:
            more = {n for n, given in self.values.items() if any(_reads(value, softmax, names) for value in given)}
            if more <= names:
                break
            names |= more
        products = [node for node in walk(self.function) if _is_product(node)]
        return any(_reads(side, softmax, names) for product in products for side in ast.iter_child_nodes(product))

    def _product(self, node: ast.AST, seen: set[str]) -> bool:
        """Whether a product is part of ``node``, or of what its names were assigned."""
        if _is_product(node):
            return True
        if isinstance(node, ast.Name) and node.id not in seen:
            seen.add(node.id)
            return any(self._product(value, seen) for value in self.values.get(node.id, []))
        return any(self._product(child, seen) for child in _through(node))


def _assignments(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for one in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
                if isinstance(one, ast.Name):
                    yield one.id, node.value
    if not isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) or node.value is None:
        return
    if isinstance(node.target, ast.Name):
        yield node.target.id, node.value


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and last_name(node.func) in PRODUCTS


def _reads(node: ast.AST, softmax: ast.Call, names: set[str]) -> bool:
    if node is softmax or (isinstance(node, ast.Name) and node.id in names):
        return True
    return any(_reads(child, softmax, names) for child in _through(node))


def _through(node: ast.AST) -> Iterable[ast.AST]:
    """The parts of ``node`` that give it its value; a child module other than a dropout makes something new."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and last_name(node.func.value) == "self":
        return node.args if "drop" in node.func.attr else ()
    return ast.iter_child_nodes(node)
