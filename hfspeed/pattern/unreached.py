"""What attention does with scores or weights that only some sizes of them, or only long rows, would show."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx, nn

from hfspeed.graph.flow import behind
from hfspeed.graph.nodes import CASTS, function_name, module_of, value_of
from hfspeed.graph.positions import place_in
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import tensors
from hfspeed.pattern.replacement import place_of
from hfspeed.pattern.replay import alone
from hfspeed.pattern.scores import PRODUCTS, Written, descends, is_softmax
from hfspeed.refusal import Reason, Refusal, Refused

SMOOTH: Final = frozenset({
    "softmax", "log_softmax", "tanh", "sigmoid", "exp", "log", "log1p", "pow", "square", "sqrt", "rsqrt", "reciprocal",
})  # fmt: skip
"""Functions that are one formula for all numbers: what they do to some, measuring shows of all."""
ARITHMETIC: Final = frozenset({"mul", "div", "true_divide", "truediv", "divide", "multiply"})
"""The same of two values that both come from scores."""
NUMBERLESS: Final = frozenset({"isnan", "isinf", "isfinite", "isneginf", "isposinf"})
"""Questions that no score answers with yes."""
SHAPED: Final = frozenset({
    "empty_like", "full_like", "new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "ones_like",
    "zeros_like",
})  # fmt: skip
"""What is made like scores has none of their numbers."""
SCORES: Final = (-1e3, -1.0, 1e-3, 30.0, 1e3)
"""How often as large scores are tried; the largest are some thousands, and what begins at 1e4 no score reaches."""
WEIGHTS: Final = (1e-4, 1e-2, 0.5)
"""The same of weights, which lie between 0 and 1."""
_SEED: Final = 7
_CLOSE: Final = 1e-6
_SLIGHT: Final = 1e-8
"""A bound of weights below this, as is put under a sum, changes nothing."""
_HELP = "leave it out, or cap scores by tanh; kernels know a scale, a tanh cap, masks and biases, and no other change"


def vetted(one: Written) -> None:
    """Refuse operations between the products of ``one`` that a proof with other numbers would not see.

    Raises:
        Refused: at the line of the first of them.
    """
    if one.first is not one.last:
        _vet(one.call, {one.first}, {one.last})


def vetted_weights(call: Call, tokens: int) -> None:
    """The same for whatever ``call`` makes weights of, in a recorded prompt of ``tokens`` tokens.

    Raises:
        Refused: as `vetted`.
    """
    for softmax in (node for node in call.graph.nodes if is_softmax(node)):
        value = value_of(softmax)
        if isinstance(value, torch.Tensor) and value.ndim == 4 and value.shape[-2] == tokens <= value.shape[-1]:
            first, last = _nearest(softmax, "all_input_nodes"), _nearest(softmax, "users")
            _vet(call, first, last)


def _nearest(start: fx.Node, direction: str) -> set[fx.Node]:
    """The first products that are met on the way."""
    found: set[fx.Node] = set()
    seen, todo = {start}, list(getattr(start, direction))
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if function_name(node) in PRODUCTS:
            found.add(node)
        else:
            todo.extend(getattr(node, direction))
    return found


def _vet(call: Call, first: set[fx.Node], last: set[fx.Node]) -> None:
    made = {node for one in first for node in descends(one)} - first
    wanted = behind(*last)
    moving = set(first)
    weights: set[fx.Node] = set()
    for node in call.graph.nodes:
        inputs = [one for one in node.all_input_nodes if one in moving]
        if node not in made or node not in wanted or node in last or not inputs:
            continue
        if function_name(node) in NUMBERLESS | SHAPED or _shifts(node):
            continue  # what is made of it counts as no score
        moving.add(node)
        if is_softmax(node) or weights.intersection(inputs):
            weights.add(node)
        if not _plain(node, inputs, after=bool(weights.intersection(inputs))):
            name = function_name(node) or type(module_of(node)).__name__
            kind = "weights" if weights.intersection(inputs) else "scores"
            found = f"what `{name}` does hangs on how large the {kind} are, or how many, and no kernel does it"
            place = place_in(node.meta.get("stack") or ()) or place_of(call, node)
            raise Refused(Refusal("attention", Reason.NO_INTERFACE, found, call.path, place, 1, _HELP))


def _shifts(node: fx.Node) -> bool:
    """Whether ``node`` is one number a row that is only taken from scores, which changes no softmax."""
    if function_name(node) in {"sub", "__sub__"}:
        return False
    users, todo = [], [node]
    while todo:
        at = todo.pop()
        value = value_of(at)
        if isinstance(value, torch.Tensor) and (value.ndim == 0 or value.shape[-1] != 1):
            return False
        for user in at.users:
            todo.append(user) if function_name(user) in {"getitem", "detach"} else users.append((at, user))
    return bool(users) and all(
        function_name(user) in {"sub", "__sub__"} and user.args[1:2] == (at,) for at, user in users
    )


def _plain(node: fx.Node, inputs: list[fx.Node], *, after: bool) -> bool:
    """Whether ``node`` does the same to all sizes of scores, or to all weights where they are made (``after``)."""
    name, module = function_name(node).strip("_"), module_of(node)
    if any(not one.is_floating_point() for one in tensors(value_of(node))):
        return False  # the answer to a question about them, or their order
    if name in SMOOTH | CASTS or isinstance(module, nn.Softmax | nn.Tanh | nn.Sigmoid) or name == "setitem":
        return True
    if len(inputs) > 1 and name in ARITHMETIC:
        return True
    parts = [one for one in inputs if isinstance(value_of(one), torch.Tensor)]
    return not parts or _straight(node, parts, after=after) or _caps(node, parts)


def _straight(node: fx.Node, inputs: list[fx.Node], *, after: bool) -> bool:
    """Whether the result grows as the scores do."""
    source = torch.Generator().manual_seed(_SEED)
    given = {}
    for one in inputs:
        shape = value_of(one).shape
        x = torch.rand(shape, generator=source, dtype=torch.float64).pow(8)
        given[one] = x if after else torch.randn(shape, generator=source, dtype=torch.float64)
    none, once = _results(node, given, 0.0), _results(node, given, 1.0)
    for factor in WEIGHTS if after else SCORES:
        for zero, some, much in zip(none, once, _results(node, given, factor), strict=True):
            finite = zero.isfinite()
            if not torch.equal(finite, much.isfinite()) or not torch.equal(finite, some.isfinite()):
                return False
            rise, wanted = (much - zero)[finite], (some - zero)[finite] * factor
            room = _CLOSE * wanted.abs() + _SLIGHT * (1 + 1e-4 * abs(factor) * zero[finite].abs())
            if not bool(((rise - wanted).abs() <= room).all()):
                return False
    return True


def _caps(node: fx.Node, inputs: list[fx.Node]) -> bool:
    """Whether a child caps scores by tanh."""
    if node.op != "call_module" or len(inputs) != 1:
        return False
    x = torch.linspace(-90, 90, value_of(inputs[0]).numel(), dtype=torch.float64).reshape(value_of(inputs[0]).shape)
    (most,), (found,) = _results(node, {inputs[0]: x}, 1e9), _results(node, {inputs[0]: x}, 1.0)
    cap = float(most.abs().max())
    return most.shape == x.shape and torch.allclose(found, cap * torch.tanh(x / cap), rtol=1e-4, atol=1e-6)


def _results(node: fx.Node, given: dict[fx.Node, torch.Tensor], factor: float) -> tuple[torch.Tensor, ...]:
    known = {one: given[one] * factor if one in given else _ones(one) for one in node.all_input_nodes}
    return tuple(part.double() for part in tensors(alone(node, known)))


def _ones(node: fx.Node) -> Any:
    """What the recorded run had, or ones where nobody knows."""
    value, shadow = value_of(node), node.meta.get("shadow")
    if not isinstance(value, torch.Tensor):
        return value
    found = shadow if isinstance(shadow, torch.Tensor) else value
    if found.is_meta:
        found = torch.ones(found.shape, dtype=found.dtype)
    return found.double() if found.is_floating_point() else found.clone()
