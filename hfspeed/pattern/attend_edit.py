"""The source change that puts paged attention in place of attention written by hand."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from types import CodeType

from torch import fx, nn

from hfspeed.graph.positions import span_at
from hfspeed.pattern.attend_call import Frame, argument, arguments, results
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.layout import FLAT, RESULT, spelled
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


@dataclass(frozen=True)
class Where:
    """Where attention is computed.

    Attributes:
        method: the module's method.
        frame: that method, calling the function that computes it; ``None`` if the method does so itself.
        function: that function.
    """

    method: str
    frame: Frame | None = None
    function: CodeType | None = None


def where(one: Written) -> Where:
    """The innermost method of the module in which, or in one call of which, both products are computed.

    Raises:
        Refused: there is none.
    """
    if getattr(one.call.module, "attn", None) is not None:
        told = "the module has an `attn` of its own, where attention would go"
        raise refused(one.call, Reason.USED_ELSEWHERE, told, one.first, "give it another name")
    stack, other = (node.meta.get("stack", ()) for node in (one.first, one.last))
    names = methods_of(type(one.call.module))
    depth = next((depth for depth, (code, _) in enumerate(stack) if code in names), None)
    if depth == 0 and other[0][0] is stack[0][0]:
        return Where(names[stack[0][0]])
    if depth and stack[depth] in other:
        return Where(names[stack[depth][0]], stack[depth], stack[depth - 1][0])
    told = "the products of attention do not stand in one method of the module"
    help_ = "compute attention in one method, or call the attention interface"
    raise refused(one.call, Reason.CALLED_THROUGH_HELPER, told, one.first, help_)


def edit(one: Written, at: Where, inner: Written, *, grouped: bool = False) -> AttentionEdit:
    """Changes that make the method call ``self.attn``.

    Args:
        one: the attention found, seen from the method.
        at: where it is computed.
        inner: the attention as it was found.
        grouped: heads of key and value are repeated, so that one of each group is enough.

    Raises:
        Refused: the source cannot be changed so, or the products are not their only purpose.
    """
    try:
        recovered = recovered_of(type(one.call.module), at.method)  # type: ignore[arg-type]  # mypy takes no class for hashable
    except Refused as no:
        raise refused(one.call, no.refusal.reason, no.refusal.found, one.first, no.refusal.help) from no
    if at.frame is None:
        first, last = (_expression(one, recovered, node.meta["stack"][0]) for node in (one.first, one.last))
        texts = [_operand(one, recovered, product, node, part) for product, node, part in (
            (first, one.first, one.query), (first, one.first, one.key), (last, one.last, one.value),
        )]  # fmt: skip
        _unwritten(one, recovered, first, last)
        values = argument(last, one.last, one.value.at)
    else:
        first = last = _expression(one, recovered, at.frame)
        given = _given(one, inner, at, last)
        pairs = zip(given, (one.query, one.key, one.value), strict=True)
        sizes = [f"{recovered.self_name}.attn.{name}" for name in ("key_size", "key_size", "value_size")]
        texts = [
            _spelled(recovered, expression, part.layout, size)
            for (expression, part), size in zip(pairs, sizes, strict=True)
        ]
        values = given[2]
    if grouped:
        texts[1:] = [f"{text}[:, :: {recovered.self_name}.attn.repeats]" for text in texts[1:]]
    kept = _call(recovered, texts, one.layout, values) + _beside(one, at)
    return AttentionEdit(at.method, recovered, _pruned(one, recovered, first, last, kept))


def _pruned(one: Written, recovered: Recovered, first: ast.expr, last: ast.expr, kept: str) -> tuple[Change, ...]:
    try:
        changes = prune(recovered, first, last, f"({kept})" if kept.endswith(", None") else kept)
        changed(recovered, changes)
    except Tangled as knot:
        told = f"`{knot}` does more than compute attention"
        raise refused(one.call, Reason.USED_ELSEWHERE, told, one.first) from knot
    except ValueError as error:
        raise refused(one.call, Reason.UNSUPPORTED_SYNTAX, str(error).split("\n")[0], one.first) from error
    return tuple(changes)


def _given(one: Written, inner: Written, at: Where, call: ast.expr) -> list[ast.expr]:
    assert at.function is not None
    if not isinstance(call, ast.Call):
        raise refused(one.call, Reason.NOT_A_PLAIN_CALL, "the function that attends is not plainly called", one.first)
    return arguments(one, inner, at.function, call)


def _beside(one: Written, at: Where) -> str:
    """What the function returns besides the result: weights, which are no longer there."""
    if at.function is None:
        return ""
    count = results(at.function)
    if count < 0:
        raise refused(one.call, Reason.CALLED_THROUGH_HELPER, "the function returns now this, now that", one.last)
    return ", None" * (count - 1) if count else ""


def _call(recovered: Recovered, texts: list[str], layout: str, values: ast.expr | None) -> str:
    """The call; scores may be computed in another dtype than values have, attention is in that of the values."""
    query, key, value = texts
    cast = f".to({values.id}.dtype)" if isinstance(values, ast.Name) else ""
    whole = f"{recovered.self_name}.attn({query}{cast}, {key}{cast}, {value}, None)[0]"
    return spelled(whole, RESULT, layout)


def methods_of(cls: type[nn.Module]) -> dict[CodeType, str]:
    """The code of every method that a class has, to its name."""
    found: dict[CodeType, str] = {}
    for owner in reversed(cls.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, staticmethod | classmethod | property):
                continue
            code = getattr(inspect.unwrap(value), "__code__", None) if callable(value) else None
            if code is not None:
                found[code] = name
    return {code: name for code, name in found.items() if getattr(cls, name, None) is not None}


def _expression(one: Written, recovered: Recovered, frame: Frame) -> ast.expr:
    span = span_at(*frame, direct=True)
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column) if span else None
    if not isinstance(found, ast.expr):
        raise refused(one.call, Reason.UNSUPPORTED_SYNTAX, "attention is no plain expression", one.first)
    return found


def _operand(one: Written, recovered: Recovered, product: ast.expr, node: fx.Node, part: Operand) -> str:
    """The source of an operand, in the order of the interface."""
    found = argument(product, node, part.at)
    if found is None:
        told = "a product of attention is not called with its factors"
        raise refused(one.call, Reason.NOT_A_PLAIN_CALL, told, node)
    return _spelled(recovered, found, part.layout)


def _spelled(recovered: Recovered, found: ast.expr, layout: str, size: str = "") -> str:
    turned = _turned(found, len(layout)) if FLAT not in layout else None
    if turned is not None:
        found, layout = turned, layout[:-2] + layout[-1] + layout[-2]
    text = recovered.segment(found)
    plain = isinstance(found, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return spelled(text if plain else f"({text})", layout, size=size)


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
