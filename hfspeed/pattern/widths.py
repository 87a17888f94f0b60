"""Shapes that name a number of heads or a width: where ranks hold shares, that number is left to be found."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import torch
from torch import fx

from hfspeed.graph.flow import origins
from hfspeed.graph.nodes import function_name, is_linear, value_of
from hfspeed.graph.positions import Span
from hfspeed.graph.record import Call
from hfspeed.pattern.edit import Change
from hfspeed.source import Recovered

NOTE = "shapes fit any share of the heads"
_SHAPES = ("view", "reshape")


def widths(call: Call, recovered: Recovered, split: Collection[int], taken: Collection[ast.AST]) -> Iterator[Change]:
    """Changes that put ``-1`` for the one size of a new shape that counts split things.

    Args:
        call: the module's recorded call.
        recovered: its forward.
        split: numbers that ranks divide: heads, and widths of all heads.
        taken: expressions that are changed otherwise already.
    """
    seen: list[ast.AST] = list(taken)
    for node in call.graph.nodes:
        if function_name(node) not in _SHAPES or not _of_shares(node):
            continue
        found = _sizes(recovered, node)
        if found is None or any(inner is found for one in seen for inner in ast.walk(one)):
            continue
        sizes, given = [int(n) for n in value_of(node).shape], found.args
        if len(given) != len(sizes) or any(map(_free, given)):
            continue
        counts = [at for at, size in enumerate(sizes) if size in split]
        if len(counts) == 1:
            seen.append(found)
            yield Change("replace", given[counts[0]], "-1")


def _of_shares(node: fx.Node) -> bool:
    """Whether what is shaped comes from a linear of the module: only there values are split."""
    return any(is_linear(source) for source in origins(node.all_input_nodes[0])) if node.all_input_nodes else False


def _sizes(recovered: Recovered, node: fx.Node) -> ast.Call | None:
    """The call ``x.view(…)`` with every size an argument of its own."""
    span = node.meta.get("span")
    if not isinstance(span, Span) or not span.direct or span.file != recovered.file:
        return None
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column)
    if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Attribute) or found.func.attr not in _SHAPES:
        return None
    plain = not found.keywords and not any(isinstance(one, ast.Starred) for one in found.args)
    return found if plain and isinstance(value_of(node), torch.Tensor) else None


def _free(size: ast.expr) -> bool:
    return ast.unparse(size) == "-1"
