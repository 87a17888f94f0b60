"""A gated product becomes one call: the product's expression, and the temporaries that only fed it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from torch import fx

from hfspeed.pattern.edit import Change
from hfspeed.pattern.site import Site
from hfspeed.pattern.stack import folded, hoisted, projections
from hfspeed.source.blocks import innermost_common_block
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
    first, value = hoisted(site, wanted, calls, parts)
    rest = folded(site, wanted, calls, parts)
    if not isinstance(product, ast.expr):
        return None
    me = site.recovered.self_name
    if all(_inside(product, call) for call in calls):
        return [Change("replace", product, f"{me}.{kernel}({me}.{merged}({value}))"), *rest]
    dead = _dead(site, product, calls)
    if dead is None:
        return None
    (name,) = site.free_locals([merged.removesuffix("_proj")])
    return [
        Change("before", first, f"{name} = {me}.{merged}({value})", (name,)),
        Change("replace", product, f"{me}.{kernel}({name})"),
        *(Change("delete", stmt) for stmt in dead),
        *rest,
    ]


def fused_halves(
    site: Site, wanted: str, root: fx.Node, cut: fx.Node, packed: fx.Node, kernel: str
) -> list[Change] | None:
    """Changes that make the product at ``root`` be ``self.<kernel>`` of what the linear ``packed`` gave.

    The cut into halves goes if nothing else reads the halves; else it stays where the author put it.
    ``None`` if the product or the linear stands in a form that cannot be replaced.

    Raises:
        Refused: the linear is not plainly called, or not in the block of the product.
    """
    product = site.expression(root)
    call = site.plain_call(packed, wanted)
    if not isinstance(product, ast.expr) or _inside(product, call):
        return None
    first = site.recovered.statement_of(call)
    innermost_common_block(site.recovered, [call, site.recovered.statement_of(product)])
    (name,) = site.free_locals(["gate_up"])
    halved = site.expression(cut)
    stmt = site.recovered.statement_of(halved) if halved is not None else None
    dead = [stmt] if stmt is not None and unread(site.recovered, stmt, product) else []
    kept = [] if dead == [first] else [Change("replace", call, name)]
    return [
        Change("before", first, f"{name} = {site.recovered.segment(call)}", (name,)),
        *kept,
        *(Change("delete", stmt) for stmt in dead),
        Change("replace", product, f"{site.recovered.self_name}.{kernel}({name})"),
    ]


def _inside(outer: ast.AST, inner: ast.AST) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _dead(site: Site, product: ast.expr, calls: Sequence[ast.Call]) -> list[ast.stmt] | None:
    """The assignments that only prepare the product; ``None`` if one of them serves another purpose."""
    recovered = site.recovered
    dead: list[ast.stmt] = []
    names: set[str] = set()
    todo = [recovered.statement_of(call) for call in calls if not _inside(product, call)]
    while todo:
        stmt = todo.pop()
        if stmt in dead:
            continue
        target = stmt.targets[0] if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 else None
        if not isinstance(target, ast.Name):
            return None
        dead.append(stmt)
        if target.id in names:
            continue
        names.add(target.id)
        for use in ast.walk(recovered.tree):
            if isinstance(use, ast.Name) and use.id == target.id and not _inside(product, use):
                todo.append(recovered.statement_of(use))
    clean = all(_feeds(site, stmt, product) for stmt in dead)
    return dead if clean and not any(_inside(stmt, product) for stmt in dead) else None


def _feeds(site: Site, stmt: ast.stmt, product: ast.expr) -> bool:
    """A straight assignment in the product's own block, without a call other than the fused ones."""
    return stmt in site.recovered.block_of(site.recovered.statement_of(product))
