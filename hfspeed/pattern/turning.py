"""Calls that may turn heads by position: found by what goes in and out, decided by running the function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, get_args

import torch
from torch import fx, nn

from hfspeed.graph.exact import Exact
from hfspeed.graph.nodes import value_of
from hfspeed.graph.positions import Span
from hfspeed.pattern.rotation import once, turned, twice
from hfspeed.pattern.site import Site
from hfspeed.plan.ops import Table

_TOKENS: Final = 5
_COUNTS: Final = (3, 2)
_BOUND: Final = 1e-9


@dataclass(frozen=True)
class Turn:
    """A call that takes heads and two values more, and gives heads.

    Attributes:
        call: the expression.
        nodes: the operations that ran in it.
        heads: what is turned, one or two values ``[1, heads, tokens, size]`` or with heads and tokens exchanged.
        angles: the shape of the two other values.
        given: these values.
        function: what is called.
    """

    call: ast.Call
    nodes: tuple[fx.Node, ...]
    heads: tuple[fx.Node, ...]
    angles: tuple[int, ...]
    given: tuple[fx.Node, ...]
    function: Any


@dataclass(frozen=True)
class Way:
    """How heads are turned; the names are those of the plan's `Rotary`."""

    tokens: int
    table: Table
    interleaved: bool


def turns(site: Site) -> Iterator[Turn]:
    """Calls of functions in the forward at ``site`` that could turn heads, by what goes in and comes out."""
    for call, nodes in _calls(site).items():
        inside = set(nodes)
        entries = list(dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in inside))
        exits = [n for n in nodes if any(user not in inside for user in n.users)]
        count = len(slots(call)) - 2
        if count not in (1, 2) or len(exits) != count or len(entries) != count + 2:
            continue
        shapes = {_shape(n) for n in exits}
        heads = [n for n in entries if _shape(n) in shapes and len(_shape(n)) == 4]
        given = tuple(n for n in entries if n not in heads)
        rest = [_shape(n) for n in given]
        function = _function(site, call)
        if function is not None and len(heads) == count and len(rest) == 2 and rest[0] == rest[1]:
            yield Turn(call, tuple(nodes), tuple(heads), rest[0], given, function)


def slots(call: ast.Call) -> list[ast.expr]:
    """The arguments that are no literals, in the order of the text."""
    values = [*call.args, *(k.value for k in call.keywords)]
    return [value for value in values if not isinstance(value, ast.Constant)]


def way_of(turn: Turn) -> Way | None:
    """The way in which the function turns what it is given; ``None`` if it does something else."""
    for tokens, table, interleaved in product((2, 1), get_args(Table), (False, True)):
        way = Way(tokens, table, interleaved)
        if _possible(turn, way) and _agrees(turn, way):
            return way
    return None


def stands(turn: Turn, way: Way) -> bool:
    """Whether the recorded cosines and sines stand in the way that is read; not, if nobody knows their values.

    Half of them is never read where each angle stands twice, and whether it does may hang on sizes.
    """
    if way.table == "half":
        return True
    for node in turn.given:
        value = node.meta.get("shadow")
        if value is None or value.is_meta or not torch.equal(twice(once(value, way.table), way.table), _flat(value)):
            return False
    return True


def _flat(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1, value.shape[-1])


def _calls(site: Site) -> dict[ast.Call, list[fx.Node]]:
    """Calls of the forward, each with the operations that ran in it."""
    found: dict[ast.Call, list[fx.Node]] = {}
    for node in site.graph.nodes:
        span = node.meta.get("span")
        if node.op != "call_function" or not isinstance(span, Span) or span.direct:
            continue
        if span.file == site.recovered.file:
            at = site.recovered.node_at(span.line, span.end_line, span.column, span.end_column)
            if isinstance(at, ast.Call):
                found.setdefault(at, []).append(node)
    return found


def _function(site: Site, call: ast.Call) -> Any:
    """The function called: of the forward's module, or an attribute of the module itself that is no child."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    found: Any = None
    match call.func:
        case ast.Name(id=name):
            forward: Any = inspect.unwrap(site.call.cls.forward)
            found = forward.__globals__.get(name)
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner == site.recovered.self_name:
            found = getattr(site.call.module, name, None)
    return found if callable(found) and not isinstance(found, (nn.Module, type)) else None


def _possible(turn: Turn, way: Way) -> bool:
    long, width = _shape(turn.heads[0])[way.tokens], turn.angles[-1]
    doubled = width if way.table == "half" else width // 2
    fits = 0 < 2 * doubled <= _shape(turn.heads[0])[3]
    return fits and turn.angles[:-1].count(long) == 1 and all(n in {1, long} for n in turn.angles[:-1])


def _agrees(turn: Turn, way: Way) -> bool:
    """Whether the function turns heads so, tried on random numbers."""
    heads, cos, sin = _drawn(turn, way)
    given = iter([*(head.clone() for head in heads), *(_laid(turn, way, one) for one in (cos, sin))])

    def literal(value: ast.expr) -> Any:
        return value.value if isinstance(value, ast.Constant) else next(given)

    try:
        with torch.no_grad(), torch.device("cpu"), Exact():
            args = [literal(value) for value in turn.call.args]
            out = turn.function(*args, **{str(k.arg): literal(k.value) for k in turn.call.keywords})
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError):
        return False
    outs = out if isinstance(out, tuple | list) else (out,)
    wanted = [turned(head, cos, sin, tokens=way.tokens, interleaved=way.interleaved) for head in heads]
    return len(outs) == len(wanted) and all(map(_same, outs, wanted))


def _drawn(turn: Turn, way: Way) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Random heads, different numbers of them, and random angles ``[tokens, angles]``."""
    source = torch.Generator().manual_seed(7)

    def draw(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=source, dtype=torch.float64)

    size = _shape(turn.heads[0])[3]
    width = turn.angles[-1] if way.table == "half" else turn.angles[-1] // 2
    around = [(1, n, _TOKENS, size) if way.tokens == 2 else (1, _TOKENS, n, size) for n in _COUNTS]
    return [draw(*shape) for shape in around[: len(turn.heads)]], draw(_TOKENS, width), draw(_TOKENS, width)


def _laid(turn: Turn, way: Way, angles: torch.Tensor) -> torch.Tensor:
    """Angles in the shape in which the function is given them."""
    long = _shape(turn.heads[0])[way.tokens]
    return twice(angles, way.table).reshape([*(_TOKENS if n == long else n for n in turn.angles[:-1]), turn.angles[-1]])


def _same(mine: Any, wanted: torch.Tensor) -> bool:
    shaped = isinstance(mine, torch.Tensor) and mine.shape == wanted.shape
    return shaped and torch.allclose(mine.double(), wanted, 0, _BOUND)


def _shape(node: fx.Node) -> tuple[int, ...]:
    return tuple(getattr(value_of(node), "shape", ()))
