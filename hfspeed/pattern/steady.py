"""Whether the sizes and places in an expression are the same in every run, whatever branches it takes."""

from __future__ import annotations

import ast

from hfspeed.source.effects import bound, written
from hfspeed.source.recovered import Recovered

_FACTS = {"shape", "dtype", "device", "ndim"}
_SIZES = {"size", "dim", "len", "int", "tuple", "list", "slice"}


def steady(recovered: Recovered, node: ast.AST) -> bool:
    """True if ``node`` is made of constants, shapes, attributes of the module and names bound once, plainly."""
    match node:
        case ast.Constant() | ast.operator() | ast.unaryop() | ast.expr_context():
            return True
        case ast.Attribute(attr=attr) if attr in _FACTS:
            return True
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == recovered.self_name:
            return attr != "training" and not _stored(recovered, attr)
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in {"size", "dim"}:
            return all(steady(recovered, argument) for argument in node.args)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _SIZES:
            return all(steady(recovered, argument) for argument in node.args)
        case ast.Name(id=name):
            return _once(recovered, node, name)
        case ast.Attribute() | ast.BinOp() | ast.UnaryOp() | ast.Tuple() | ast.List() | ast.Starred():
            return all(steady(recovered, child) for child in ast.iter_child_nodes(node))
        case ast.Subscript() | ast.Slice():
            return all(steady(recovered, child) for child in ast.iter_child_nodes(node))
    return False


def _stored(recovered: Recovered, attribute: str) -> bool:
    nodes = (node for node in ast.walk(recovered.tree) if isinstance(node, ast.Attribute) and node.attr == attribute)
    return any(not isinstance(node.ctx, ast.Load) for node in nodes)


def _once(recovered: Recovered, use: ast.Name, name: str) -> bool:
    """Whether ``name`` is a global, an argument never bound again, or bound by one assignment on the way to ``use``."""
    tree = recovered.tree
    argument = any(node.arg == name for node in ast.walk(tree) if isinstance(node, ast.arg))
    inside = (node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node is not tree)
    binding = [node for node in inside if _binds(node, name)]
    if not binding:
        return True
    if argument or len(binding) > 1 or not isinstance(binding[0], ast.Assign) or len(binding[0].targets) != 1:
        return False
    around: list[list[ast.stmt]] = []
    stmt = recovered.statement_of(use)
    while stmt is not tree:
        around.append(recovered.block_of(stmt))
        stmt = recovered.statement_of(recovered.parent_of(stmt) or tree)
    reached = any(recovered.block_of(binding[0]) is block for block in around)
    return reached and not _changed(recovered, name, binding[0]) and steady(recovered, binding[0].value)


def _changed(recovered: Recovered, name: str, binding: ast.Assign) -> bool:
    """Whether what ``binding`` gives to ``name`` may be changed in place later; numbers and shapes cannot be."""
    match binding.value:
        case ast.Constant() | ast.BinOp() | ast.UnaryOp() | ast.Attribute(attr="shape"):
            return False
        case ast.Call(func=ast.Attribute(attr="size")) | ast.Subscript(value=ast.Attribute(attr="shape")):
            return False
    others = [
        node
        for node in ast.walk(recovered.tree)
        if isinstance(node, ast.stmt) and not hasattr(node, "body") and node is not binding
    ]
    return name in written(others, recovered.tree.body)


def _binds(stmt: ast.stmt, name: str) -> bool:
    """Whether ``stmt`` itself, and not only a statement in it, binds ``name``."""
    inner = {child for child in ast.walk(stmt) if isinstance(child, ast.stmt) and child is not stmt}
    return name in set(bound([stmt])) and not any(name in set(bound([child])) for child in inner)
