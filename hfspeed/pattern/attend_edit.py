"""The source change that puts paged attention in place of attention written by hand."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import CodeType

from torch import fx, nn

from hfspeed.graph.nodes import function_name
from hfspeed.graph.positions import Stack, span_at
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.layout import RESULT, spelled
from hfspeed.pattern.prune import Tangled, prune
from hfspeed.pattern.scores import Operand, Written, refused
from hfspeed.pattern.site import recovered_of
from hfspeed.refusal import Reason, Refused
from hfspeed.source import Recovered
from hfspeed.source.effects import written

NOTE = "attention by hand -> attn"


@dataclass(frozen=True)
class AttentionEdit:
    """The method that computes attention, and its changes."""

    method: str
    recovered: Recovered
    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        """The method with the changes."""
        return changed(self.recovered, self.changes)


def edit(one: Written, *, grouped: bool = False) -> AttentionEdit:
    """Changes that make the method call ``self.attn``.

    Args:
        one: the attention found.
        grouped: heads of key and value are repeated, so that one of each group is enough.

    Raises:
        Refused: the products stand where no method of the module can be changed, or are not the only purpose.
    """
    method = _method(one)
    try:
        recovered = recovered_of(type(one.call.module), method)  # type: ignore[arg-type]  # mypy takes no class for hashable
    except Refused as no:
        raise refused(one.call, no.refusal.reason, no.refusal.found, one.first, no.refusal.help) from no
    first, last = (_expression(one, recovered, node) for node in (one.first, one.last))
    texts = [_operand(one, recovered, product, node, part) for product, node, part in (
        (first, one.first, one.query), (first, one.first, one.key), (last, one.last, one.value),
    )]  # fmt: skip
    _unwritten(one, recovered, first, last)
    if grouped:
        texts[1:] = [f"{text}[:, :: {recovered.self_name}.attn.repeats]" for text in texts[1:]]
    kept = _call(recovered, texts, one.layout, _argument(last, one.last, one.value.at))
    try:
        changes = prune(recovered, first, last, kept)
        text = changed(recovered, changes)
    except Tangled as knot:
        told = f"`{knot}` does more than compute attention"
        raise refused(one.call, Reason.USED_ELSEWHERE, told, one.first) from knot
    except ValueError as error:
        raise refused(one.call, Reason.UNSUPPORTED_SYNTAX, str(error).split("\n")[0], one.first) from error
    assert text
    return AttentionEdit(method, recovered, tuple(changes))


def _call(recovered: Recovered, texts: list[str], layout: str, values: ast.expr | None) -> str:
    """The call; scores may be computed in another dtype than values have, attention is in that of the values."""
    query, key, value = texts
    cast = f".to({values.id}.dtype)" if isinstance(values, ast.Name) else ""
    whole = f"{recovered.self_name}.attn({query}{cast}, {key}{cast}, {value}, None)[0]"
    return spelled(whole, RESULT, layout)


def _method(one: Written) -> str:
    """The name of the method in which both products stand."""
    stacks: list[Stack] = [one.first.meta.get("stack", ()), one.last.meta.get("stack", ())]
    codes = [stack[0][0] if stack else None for stack in stacks]
    names = _methods(type(one.call.module))
    name = names.get(codes[0]) if codes[0] is not None else None
    if name is None or codes[0] is not codes[1]:
        told = "the products of attention do not stand in one method of the module"
        help_ = "compute attention in one method, or call the attention interface"
        raise refused(one.call, Reason.CALLED_THROUGH_HELPER, told, one.first, help_)
    return name


def _methods(cls: type[nn.Module]) -> dict[CodeType, str]:
    found: dict[CodeType, str] = {}
    for owner in reversed(cls.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, staticmethod | classmethod | property):
                continue
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if code is not None:
                found[code] = name
    return {code: name for code, name in found.items() if getattr(cls, name, None) is not None}


def _expression(one: Written, recovered: Recovered, node: fx.Node) -> ast.expr:
    code, last = node.meta["stack"][0]
    span = span_at(code, last, direct=True)
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column) if span else None
    if not isinstance(found, ast.expr):
        raise refused(one.call, Reason.UNSUPPORTED_SYNTAX, "a product of attention is no plain expression", node)
    return found


def _operand(one: Written, recovered: Recovered, product: ast.expr, node: fx.Node, part: Operand) -> str:
    """The source of an operand, in the order of the interface."""
    found = _argument(product, node, part.at)
    if found is None:
        told = "a product of attention is not called with its factors"
        raise refused(one.call, Reason.NOT_A_PLAIN_CALL, told, node)
    turned = _turned(found, len(part.layout))
    layout = part.layout
    if turned is not None:
        found, layout = turned, layout[:-2] + layout[-1] + layout[-2]
    text = recovered.segment(found)
    plain = isinstance(found, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return spelled(text if plain else f"({text})", layout)


def _argument(product: ast.expr, node: fx.Node, at: int | str) -> ast.expr | None:
    """The expression of one argument of a recorded call."""
    if isinstance(product, ast.BinOp):
        return product.left if at == 0 else product.right
    if not isinstance(product, ast.Call) or any(isinstance(a, ast.Starred) for a in product.args):
        return None
    if isinstance(at, str):
        return next((k.value for k in product.keywords if k.arg == at), None)
    given = list(product.args)
    if len(given) == len(node.args) - 1 and isinstance(product.func, ast.Attribute):
        given.insert(0, product.func.value)
    if len(given) != len(node.args):
        named = {k.arg: k.value for k in product.keywords}  # functions of torch normalise what they are given
        return _named(named, node, at, given)
    return given[at]


def _named(named: dict[str | None, ast.expr], node: fx.Node, at: int, given: list[ast.expr]) -> ast.expr | None:
    if function_name(node) == "scaled_dot_product_attention":
        return given[at] if at < len(given) else named.get(("query", "key", "value")[at])
    return None


def _turned(node: ast.expr, dimensions: int) -> ast.expr | None:
    """What is under a plain exchange of the last two dimensions."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.keywords:
        return None
    given = sorted(ast.unparse(a) for a in node.args)
    last = [["-1", "-2"], [str(dimensions - 2), str(dimensions - 1)]]
    if node.func.attr in {"transpose", "swapaxes", "swapdims"} and given in last:
        return node.func.value
    return None


def _unwritten(one: Written, recovered: Recovered, first: ast.expr, last: ast.expr) -> None:
    """Refuse if what goes into the first product may be written before the last is computed."""
    names = {n.id for n in ast.walk(first) if isinstance(n, ast.Name)} - {recovered.self_name}
    start, end = recovered.statement_of(first), recovered.statement_of(last)
    between = [
        stmt
        for stmt in ast.walk(recovered.tree)
        if isinstance(stmt, ast.stmt)
        and not hasattr(stmt, "body")
        and recovered.offsets(start)[1] <= recovered.offsets(stmt)[0] < recovered.offsets(end)[0]
    ]
    if start is not end and (harmed := names & (written(between, between))):
        lost = {n for n in harmed if n not in _assigned_from(start)}
        if lost:
            told = f"`{min(lost)}` is written between the products of attention"
            raise refused(one.call, Reason.INPUT_WRITTEN, told, one.last)


def _assigned_from(stmt: ast.stmt) -> set[str]:
    """Names that the statement itself gives to its result."""
    targets = stmt.targets if isinstance(stmt, ast.Assign) else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
