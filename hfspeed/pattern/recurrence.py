"""Calls of stateful functions: what each asks for, and the change that gives it a state per sequence."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import CodeType
from typing import Any, NoReturn

from torch import fx, nn

from hfspeed.graph.nodes import function_name, is_part, module_of, value_of
from hfspeed.graph.positions import span_at
from hfspeed.graph.stateful import is_stateful, kernel_at, parameters_of
from hfspeed.pattern.attend_edit import methods_of
from hfspeed.pattern.edit import Change, changed
from hfspeed.pattern.site import Site, recovered_of
from hfspeed.plan import Recurrence
from hfspeed.plan.settings import shown
from hfspeed.recurrences import Bound, Kernel, Unsupported
from hfspeed.refusal import Reason, Refusal, Refused

WANTED = "recurrence"
Place = tuple[CodeType, int]


def recurrences(site: Site) -> list[Recurrence]:
    """One op for each expression that calls a stateful function; the site gets the changes.

    Raises:
        Refused: a call that cannot be served, at its line.
    """
    groups: dict[Place, list[fx.Node]] = {}
    for node in site.graph.nodes:
        if is_stateful(node):
            groups.setdefault(_place(site, node), []).append(node)
    changes: dict[str, list[Change]] = {}
    ops, taken = [], set(dir(site.call.module))
    for (code, last), nodes in groups.items():
        method = methods_of(site.call.cls)[code]
        op = _op(site, nodes, taken)
        taken.add(op.name)
        ops.append(op)
        changes.setdefault(method, []).extend(_changes(site, nodes[0], method, (code, last), op.name))
    _apply(site, changes)
    site.promised += [op.name for op in ops]
    site.notes += [f"{_called(nodes[0])} -> {op.name}, a state per sequence" for op, nodes in _pairs(ops, groups)]
    return ops


def _pairs(ops: Sequence[Recurrence], groups: dict[Place, list[fx.Node]]) -> list[tuple[Recurrence, list[fx.Node]]]:
    return list(zip(ops, groups.values(), strict=True))


def _called(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", str(node.target).rpartition(".")[2]))


def _place(site: Site, node: fx.Node) -> Place:
    """The method of the module that makes the call, and how far it had come."""
    stack: Sequence[Place] = node.meta.get("stack", ())
    if not stack or stack[0][0] not in methods_of(site.call.cls):
        told = f"`{_called(node)}` is not called by a method of the module itself"
        _no(site, node, Reason.CALLED_THROUGH_HELPER, told, "call it in `forward`")
    return stack[0]


def _op(site: Site, nodes: Sequence[fx.Node], taken: set[str]) -> Recurrence:
    first = nodes[0]
    kernel = kernel_at(first)
    assert kernel is not None
    bounds = [_bound(site, node, kernel) for node in nodes]
    bound = bounds[0]
    shape = kernel.state(bound.operands)
    first_of_all = bound.settings, bound.pair, shape
    if any((b.settings, b.pair, kernel.state(b.operands)) != first_of_all for b in bounds):
        _no(site, first, Reason.VALUE_VARIES, f"`{_called(first)}` is called with other values each time")
    name = kernel.kind
    while name in taken:
        name += "_again"
    return Recurrence(
        path=site.path,
        name=name,
        kind=kernel.kind,
        state=shape,
        parameters=_arguments(first)[0],
        settings=_settings(site, first, kernel, bound),
        calls=len(nodes),
        pair=bound.pair,
    )


def _bound(site: Site, node: fx.Node, kernel: Kernel) -> Bound:
    try:
        bound = kernel.bind(*_arguments(node))
        kernel.check(bound)
    except Unsupported as no:
        _no(site, node, Reason.KEYWORD_NOT_CONSUMED, f"`{_called(node)}`: {no}")
    if any(is_part(user) and user.args[1] == 1 and user.users for user in node.users):
        told = f"the final state of `{_called(node)}` is read, though there is no cache"
        _no(site, node, Reason.USED_ELSEWHERE, told)
    tokens = bound.operands[next(iter(kernel.tokens))].shape[kernel.axis]
    if isinstance(module_of(node), nn.Conv1d) and not all(_cut(user, tokens) for user in node.users):
        told = f"`{_called(node)}` pads on both sides, and what it gives is not cut to the tokens"
        _no(site, node, Reason.USED_ELSEWHERE, told, "write `self.conv1d(x)[..., :x.shape[-1]]`")
    return bound


def _arguments(node: fx.Node) -> tuple[tuple[str, ...], list[Any], dict[str, Any]]:
    """Names, values by position and values by name of a call; a convolution's weights are arguments."""
    values = [_value(argument) for argument in node.args]
    keywords = {name: _value(argument) for name, argument in node.kwargs.items()}
    module = module_of(node)
    if module is None:
        return parameters_of(node.target), values, keywords  # type: ignore[arg-type]  # a function, as was seen
    if isinstance(module, nn.Conv1d):
        weight, bias = module.weight, module.bias
        return ("x", "weight", "bias"), [*values, weight.squeeze(1), bias], keywords
    return ("x",), values, keywords


def _cut(user: fx.Node, tokens: int) -> bool:
    """Whether a reader takes the first tokens only."""
    index = user.args[1] if function_name(user) == "__getitem__" and len(user.args) > 1 else None
    last = index[-1] if isinstance(index, tuple) and index else None
    return isinstance(last, slice) and last.start in {None, 0} and last.stop == tokens and last.step in {None, 1}


def _settings(site: Site, node: fx.Node, kernel: Kernel, bound: Bound) -> tuple[str, ...]:
    found = []
    for name, value in bound.settings.items():
        if value == kernel.usual[name]:
            continue
        try:
            found.append(shown(name, value))
        except ValueError as no:
            _no(site, node, Reason.VALUE_VARIES, str(no), "make it a plain value in `__init__`")
    return tuple(found)


def _value(argument: Any) -> Any:
    """A recorded argument with tensors for nodes."""
    if isinstance(argument, fx.Node):
        return value_of(argument)
    return tuple(_value(item) for item in argument) if isinstance(argument, tuple | list) else argument


def _changes(site: Site, node: fx.Node, method: str, place: Place, name: str) -> list[Change]:
    """The other callee, and what it must be given; the value handed over stays, since it may be changed as well."""
    recovered = recovered_of(site.call.cls, method)  # type: ignore[arg-type]  # mypy takes no class for hashable
    span = span_at(*place, direct=True)
    found = recovered.node_at(span.line, span.end_line, span.column, span.end_column) if span else None
    if not isinstance(found, ast.Call):
        _no(site, node, Reason.NOT_A_PLAIN_CALL, f"`{_called(node)}` is not plainly called")
    callee = Change("replace", found.func, f"{recovered.self_name}.{name}")
    if not isinstance(module_of(node), nn.Conv1d):
        return [callee]
    if len(found.args) != 1 or found.keywords or isinstance(found.args[0], ast.Starred):
        _no(site, node, Reason.NOT_A_PLAIN_CALL, f"`{_called(node)}` is not called with one value")
    conv = recovered.segment(found.func)
    return [callee, Change("argument", found, f"{conv}.weight.squeeze(1), {conv}.bias")]


def _apply(site: Site, changes: dict[str, list[Change]]) -> None:
    for method, found in changes.items():
        if method == "forward":
            site.changes += found
        else:
            site.methods[method] = changed(recovered_of(site.call.cls, method), found)  # type: ignore[arg-type]  # as above


def _no(site: Site, node: fx.Node, reason: Reason, found: str, help_: str = "") -> NoReturn:
    raise Refused(Refusal(WANTED, reason, found, site.path, site.place(node), 1, help_))
