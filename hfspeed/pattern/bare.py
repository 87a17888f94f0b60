"""Expressions of a forward that multiply by one of the module's own matrices, and by nothing else."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import fx, nn

from hfspeed.graph.nodes import function_name, value_of
from hfspeed.pattern.site import Site

PRODUCTS: Final = frozenset({"linear", "matmul", "mm", "__matmul__"})
_UNSEEN: Final = frozenset({"__init__", "reset_parameters", "extra_repr", "_init_weights", "init_weights"})
"""Methods that nobody calls once a model is built."""
_KEYWORDS: Final = {"linear": ("input", "weight", "bias"), "matmul": ("input", "other"), "mm": ("input", "mat2")}


@dataclass(frozen=True)
class Product:
    """``value @ matrix + vector``.

    Attributes:
        at: the whole expression.
        node: what it computed in the recorded run.
        value: what is multiplied.
        matrix / vector: names of the module's parameters; no vector is the empty name.
        turned: the matrix is kept as ``[inputs, outputs]``.
        wide: both are brought to float32 first.
    """

    at: ast.expr
    node: fx.Node
    value: ast.expr
    matrix: str
    vector: str
    turned: bool
    wide: bool


@dataclass(frozen=True)
class _Read:
    name: str
    turned: bool
    wide: bool


def is_product(node: fx.Node) -> bool:
    """Whether ``node`` multiplies by a matrix that is a parameter, perhaps behind casts."""
    return function_name(node) in PRODUCTS and any(_held(given) for given in node.all_input_nodes[1:])


def products(site: Site) -> Iterator[Product]:
    """Each expression of the forward at ``site`` that is such a product of a parameter of the module itself."""
    seen: set[int] = set()
    for node in site.graph.nodes:
        found = site.expression(node) if is_product(node) else None
        if found is not None and id(found) not in seen and (product := _product(site, node, found)):
            seen.add(id(found))
            yield product


def elsewhere(site: Site, product: Product) -> ast.AST | str | None:
    """Where else the forward mentions what ``product`` takes away, or the name of another method that does."""
    inside = {id(one) for one in ast.walk(product.at)}
    names = {product.matrix, product.vector} - {""}
    for mention in ast.walk(site.recovered.tree):
        if isinstance(mention, ast.Attribute) and mention.attr in names and id(mention) not in inside:
            return mention
    for owner in site.call.cls.__mro__[: site.call.cls.__mro__.index(nn.Module)]:
        for name, method in vars(owner).items():
            code = getattr(inspect.unwrap(method), "__code__", None) if inspect.isroutine(method) else None
            if code is not None and name not in {"forward", *_UNSEEN} and names & set(code.co_names):
                return name
    return None


def _held(node: fx.Node) -> bool:
    while node.op == "call_function" and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node.op == "get_attr"


def _product(site: Site, node: fx.Node, at: ast.AST) -> Product | None:
    parts = _parts(at)
    if parts is None:
        return None
    value, matrix, vector, turned = parts
    first, second = _read(site, matrix), _read(site, vector) if vector is not None else None
    if first is None or (vector is not None and (second is None or second.turned)):
        return None
    wide = {first.wide} | ({second.wide} if second else set())
    held = site.call.module._parameters[first.name]
    assert held is not None
    if len(wide) > 1 or held.ndim != 2 or value_of(node).ndim < 2 or not isinstance(at, ast.expr):
        return None
    if second is not None and site.call.module._parameters[second.name].shape != (value_of(node).shape[-1],):  # type: ignore[union-attr]
        return None
    return Product(at, node, value, first.name, second.name if second else "", turned != first.turned, first.wide)


def _parts(at: ast.AST) -> tuple[ast.expr, ast.expr, ast.expr | None, bool] | None:
    """Value, matrix, vector, and whether the matrix is multiplied as it is, without being turned."""
    match at:
        case ast.BinOp(left=value, op=ast.MatMult(), right=matrix):
            return value, matrix, None, True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _KEYWORDS:
            found = _arguments(at, name)
            if not {"input", "matrix"} <= found.keys():
                return None
            added = found.get("bias")
            return found["input"], found["matrix"], None if _is_none(added) else added, name != "linear"
    return None


def _arguments(call: ast.Call, name: str) -> dict[str, ast.expr]:
    """What is given as ``input``, ``matrix`` and ``bias``; nothing where that is not plain."""
    given, names = list(call.args), _KEYWORDS[name]
    if name != "linear" and len(given) + len(call.keywords) == 1 and isinstance(call.func, ast.Attribute):
        given = [call.func.value, *given]
    named = [k.arg for k in call.keywords]
    if any(isinstance(one, ast.Starred) for one in given) or len(given) > len(names) or not {*named} <= {*names}:
        return {}
    values = dict(zip(names, given, strict=False)) | {str(k.arg): k.value for k in call.keywords}
    return {"matrix" if key == names[1] else key: value for key, value in values.items()}


def _read(site: Site, at: ast.expr) -> _Read | None:
    """A parameter of the module, turned or brought to float32 any number of times."""
    match at:
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == site.recovered.self_name:
            return _Read(name, False, False) if site.call.module._parameters.get(name) is not None else None
        case ast.Attribute(value=inner, attr="T" | "mT"):
            return _turned(_read(site, inner))
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            found = _read(site, inner)
            if name == "t" and not at.args and not at.keywords:
                return _turned(found)
            if name == "transpose" and sorted(map(ast.unparse, at.args)) in (["0", "1"], ["-1", "-2"], ["-2", "-1"]):
                return _turned(found)
            if found is not None and _widens(name, at):
                return _Read(found.name, found.turned, True)
    return None


def _turned(read: _Read | None) -> _Read | None:
    return _Read(read.name, not read.turned, read.wide) if read else None


def _widens(name: str, call: ast.Call) -> bool:
    """A cast to float32 that says so itself, whatever the run is in."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg == "dtype")]
    if name == "float":
        return not call.args and not call.keywords
    one = len(given) == 1 == len(call.args) + len(call.keywords)
    return one and name in {"to", "type"} and ast.unparse(given[0]) in {"torch.float32", "torch.float"}


def _is_none(at: ast.expr | None) -> bool:
    return at is None or (isinstance(at, ast.Constant) and at.value is None)


def sizes(product: Product, module: nn.Module) -> tuple[int, int]:
    """Inputs and outputs of a product's matrix."""
    held = module._parameters[product.matrix]
    assert isinstance(held, torch.Tensor)
    outputs, inputs = held.shape[::-1] if product.turned else held.shape
    return int(inputs), int(outputs)
