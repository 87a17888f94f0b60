"""The loop over a list of layers, and the names whose values go round it."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from hfspeed.refusal import Reason, Refusal, Refused
from hfspeed.source.effects import bound, dotted, written
from hfspeed.source.exposure import Exposure
from hfspeed.source.recovered import Recovered


@dataclass(frozen=True, eq=False)
class Loop:
    """A ``for`` over the layers, and what crosses from one turn to the next.

    Attributes:
        node: the loop.
        targets: names the loop itself binds.
        carried: names bound in the body that a later turn, or the code after the loop, reads.
        conditional: those of ``carried`` that the body binds only under an ``if``.
        changed: other names the body may change in place (lists that grow, caches).
        read: local names the body only reads.
        exits: ``break``, ``continue`` and ``return`` that leave a turn early, other than in training.
    """

    node: ast.For
    targets: tuple[str, ...]
    carried: tuple[str, ...]
    conditional: frozenset[str]
    changed: tuple[str, ...]
    read: tuple[str, ...]
    exits: tuple[ast.stmt, ...]


def layer_loop(recovered: Recovered, chain: str) -> Loop:
    """The one ``for`` whose iterable mentions ``self.<chain>``, e.g. ``layers`` or ``decoder.layers``.

    A local name that was assigned from an expression mentioning it counts as well.

    Raises:
        Refused: ``no-decoder-layers`` if there is no such loop, or several.
    """
    wanted = f"{recovered.self_name}.{chain}"
    names = _aliases(recovered.tree, wanted)
    found = [
        node for node in ast.walk(recovered.tree) if isinstance(node, ast.For) and _mentions(node.iter, wanted, names)
    ]
    if len(found) != 1:
        told = f"no loop over `{wanted}`" if not found else f"{len(found)} loops over `{wanted}`"
        place = recovered.place(found[1]) if found else recovered.place(recovered.tree)
        name = recovered.cls_name
        raise Refused(Refusal("stages", Reason.NO_DECODER_LAYERS, told, name, place))
    return _described(recovered, found[0])


def _mentions(node: ast.AST, wanted: str, names: set[str]) -> bool:
    return any(
        dotted(child) == wanted or (isinstance(child, ast.Name) and child.id in names) for child in ast.walk(node)
    )


def _aliases(tree: ast.AST, wanted: str) -> set[str]:
    """Local names for the list or a part of it."""
    names: set[str] = set()
    grew = True
    while grew:
        found = {
            target.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and _is_part(node.value, wanted, names)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        grew = not found <= names
        names |= found
    return names


def _is_part(node: ast.expr, wanted: str, names: set[str]) -> bool:
    """Whether ``node`` is the list, a slice of it, or a list or iterator made of it."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        return _is_part(node.value, wanted, names)
    if isinstance(node, ast.Call) and dotted(node.func) in ("list", "tuple", "enumerate", "zip", "iter"):
        return any(_is_part(argument, wanted, names) for argument in node.args)
    return dotted(node) == wanted or (isinstance(node, ast.Name) and node.id in names)


def _described(recovered: Recovered, loop: ast.For) -> Loop:
    targets = set(bound([loop.target]))
    body = set(bound(loop.body)) - targets
    inside = Exposure()
    inside.bind(loop.target)
    inside.block(loop.body)
    after = _read_after(recovered, loop)
    carried = {name for name in body if name in inside.reads or name in after}
    changed = {name for name in written(loop.body) if "." not in name}
    local = _locals(recovered.tree)
    return Loop(
        node=loop,
        targets=tuple(sorted(targets)),
        carried=tuple(sorted(carried)),
        conditional=frozenset(carried - _unconditional(loop.body)),
        changed=tuple(sorted((changed - carried - targets - body) & local)),
        read=tuple(sorted((inside.reads - body - targets - changed) & local)),
        exits=tuple(_exits(loop.body, f"{recovered.self_name}.training")),
    )


def _read_after(recovered: Recovered, loop: ast.For) -> set[str]:
    """Names read after the loop that need not have been bound again before."""
    after = Exposure()
    child: ast.stmt = loop
    reached = after.block(loop.orelse)
    while child is not recovered.tree and reached:
        block = recovered.block_of(child)
        index = next(i for i, stmt in enumerate(block) if stmt is child)
        reached = after.block(block[index + 1 :])
        parent = recovered.parent_of(child)
        child = recovered.statement_of(parent) if parent is not None else recovered.tree
        if isinstance(child, ast.For | ast.While):  # the next turn of an outer loop comes after too
            after.block([child])
    return after.reads


def _unconditional(body: Iterable[ast.stmt]) -> set[str]:
    """Names bound by statements that stand in the body itself or in a ``with`` of it."""
    names: set[str] = set()
    for stmt in body:
        if isinstance(stmt, ast.With):
            names |= _unconditional(stmt.body) | set(bound(stmt.items))
        elif isinstance(stmt, ast.If):  # whichever way is taken
            names |= _unconditional(stmt.body) & _unconditional(stmt.orelse)
        elif not isinstance(stmt, ast.For | ast.While | ast.Try | ast.Match):
            names |= set(bound([stmt]))
    return names


def _locals(tree: ast.FunctionDef) -> set[str]:
    args = tree.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    return {arg.arg for arg in every if arg} | set(bound(tree.body))


def _exits(stmts: Iterable[ast.stmt], training: str, nested: bool = False) -> Iterable[ast.stmt]:
    for stmt in stmts:
        if isinstance(stmt, ast.Return) or (isinstance(stmt, ast.Break | ast.Continue) and not nested):
            yield stmt
        if isinstance(stmt, ast.FunctionDef | ast.ClassDef):
            continue
        if isinstance(stmt, ast.If) and _asks(stmt.test, training):
            yield from _exits(stmt.orelse, training, nested)
            continue
        inner = nested or isinstance(stmt, ast.For | ast.While)
        for child in ast.iter_child_nodes(stmt):
            if isinstance(child, ast.stmt):
                yield from _exits([child], training, inner)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                yield from _exits(child.body, training, inner)


def _asks(test: ast.expr, name: str) -> bool:
    """Whether ``test`` is ``name``, perhaps with more conditions: false where ``name`` is."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return any(dotted(part) == name for part in parts)
