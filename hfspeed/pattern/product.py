"""A gated product becomes one call: the product's expression, and the temporaries that only fed it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torch import fx

from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.pattern.stack import folded, hoisted, projections
from hfspeed.pattern.straight import Crooked, before, line_to
from hfspeed.source.effects import written
from hfspeed.source.unread import unread


def fused_product(
    site: Site, wanted: str, root: fx.Node, parts: Sequence[fx.Node], merged: str, kernel: str
) -> list[Change] | None:
    """Changes that make the product at ``root`` be ``self.<kernel>(self.<merged>(input))``.

    ``None`` if the product stands in a form whose temporaries are needed elsewhere; then only the
    projections can be stacked.

    Raises:
        Refused: the projections themselves cannot be merged.
    """
    product = site.expression(root)
    calls = projections(site, wanted, parts)
    first, value, rest = hoisted(site, wanted, calls, parts)
    rest += folded(site, wanted, calls, parts)
    line = _line(site, product, calls)
    if line is None or not isinstance(product, ast.expr):
        return None
    dead = _dead(site, line, product)
    statements = [site.recovered.statement_of(call) for call in calls if not _inside(product, call)]
    if not all(any(stmt is one for one in dead) for stmt in statements):
        return None
    me = site.recovered.self_name
    if not statements:
        changes = [Change("replace", product, f"{me}.{kernel}({me}.{merged}({value}))")]
    else:
        (name,) = site.free_locals([merged.removesuffix("_proj")])
        changes = [
            Change("before", first, f"{name} = {me}.{merged}({value})", (name,)),
            Change("replace", product, f"{me}.{kernel}({name})"),
        ]
    return [*changes, *(Change("delete", stmt) for stmt in dead), *rest]


def fused_halves(
    site: Site, wanted: str, root: fx.Node, packed: fx.Node, kernel: str, *, moved: bool
) -> list[Change] | None:
    """Changes that make the product at ``root`` be ``self.<kernel>`` of what the linear ``packed`` gave.

    The cut into halves goes if nothing else reads the halves; else it stays where the author put it, unless the rows
    of the linear are ``moved``. ``None`` if the product or the linear stands in a form that cannot be replaced.

    Raises:
        Refused: the linear is not plainly called, or its rows are moved and something else uses it.
    """
    product = site.expression(root)
    call = site.plain_call(packed, wanted)
    line = _line(site, product, [call])
    if line is None or not isinstance(product, ast.expr) or _inside(product, call):
        return None
    first = site.recovered.statement_of(call)
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - {site.recovered.self_name}
    if names & written(before(site.recovered, first, call, []), site.recovered.tree.body):
        return None
    (name,) = site.free_locals(["gate_up"])
    dead = _dead(site, line, product)
    if moved and (folded(site, wanted, [call], [packed]) or len(dead) < len(line)):
        return None
    kept = [] if any(first is stmt for stmt in dead) else [Change("replace", call, name)]
    return [
        Change("before", first, f"{name} = {site.recovered.segment(call)}", (name,)),
        *kept,
        *(Change("delete", stmt) for stmt in dead),
        Change("replace", product, f"{site.recovered.self_name}.{kernel}({name})"),
    ]


def _line(site: Site, product: ast.AST | None, calls: Sequence[ast.Call]) -> list[ast.stmt] | None:
    """The assignments between ``calls`` and the product; ``None`` if more than they decides what it is."""
    if not isinstance(product, ast.expr):
        return None
    try:
        return line_to(site, product, calls)
    except Crooked:
        return None


def _dead(site: Site, line: Sequence[ast.stmt], product: ast.expr) -> list[ast.stmt]:
    """The assignments that nothing but the product, and one another, reads."""
    dead = [stmt for stmt in line if not _inside(stmt, product)]
    while kept := [stmt for stmt in dead if not unread(site.recovered, stmt, product, *dead)]:
        dead = [stmt for stmt in dead if not any(stmt is one for one in kept)]
    return dead


def _inside(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))
