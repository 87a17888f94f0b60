"""A module that turns positions into rows, such as cosines and sines, becomes a table of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import nn

from hfspeed.example import Example
from hfspeed.graph.exact import Exact
from hfspeed.graph.record import Call
from hfspeed.pattern.replacement import Replacement
from hfspeed.pattern.table import called, named, rows
from hfspeed.plan import Positions
from hfspeed.refusal import Reason

_LATE: Final = 70_001
_SOME: Final = (5, 3, 39, 0, 3, 38)
_BOUND: Final = 1e-6


class PositionTable(Replacement):
    """It has no weights, and gives for each token what its position alone says."""

    name = "positions"

    fuses = (
        Example("a = positions[..., None] * 0.5 ** torch.arange(4).to(x)\nreturn a.cos(), a.sin()"),
        Example("return torch.sin(positions[..., None].to(x.dtype) / torch.arange(1, 5))"),
    )
    refuses = (
        Example("return positions[..., None] / positions.max() * torch.ones(4).to(x)", reason=Reason.VALUE_VARIES),
        Example("return (positions[..., None] * x.sum()).expand(1, -1, 4)", reason=Reason.VALUE_VARIES),
        Example("return positions[..., None] * torch.ones(6, 4).to(x)", reason=Reason.CANNOT_RUN),
    )

    def sees(self, call: Call) -> bool:
        module = call.module
        if any(True for _ in module.children()) or any(True for _ in module.parameters()):
            return False
        if set(module._buffers) - module._non_persistent_buffers_set:
            return False
        given = [value for value in (*call.args, *call.kwargs.values()) if _holds_positions(value)]
        return len(given) == 1 and _is_rows(call.output, given[0].shape[-1])

    def plan(self, call: Call, twin: nn.Module, later: Sequence[Call] = ()) -> Positions:
        op, *others = [self._one(each, twin) for each in (call, *later)]
        if any(replace(other, kinds=op.kinds) != op for other in others):
            self.refuse(call, Reason.VALUE_VARIES, "it is called in several ways")
        return replace(op, kinds=tuple(dict.fromkeys(kind for each in (op, *others) for kind in each.kinds)))

    def _one(self, call: Call, twin: nn.Module) -> Positions:
        try:
            given = named(call.module, call.args, call.kwargs)
        except TypeError as error:
            self.refuse(call, Reason.CANNOT_RUN, str(error))
        places = {name: value for name, value in given.items() if value is not None}
        at = [name for name, value in places.items() if _holds_positions(value)]
        values = [name for name, value in places.items() if isinstance(value, torch.Tensor) and name not in at]
        words = [name for name, value in places.items() if isinstance(value, str) and value.isidentifier()]
        if len(at) != 1 or len(values) > 1 or len(words) > 1 or len(places) != 1 + len(values) + len(words):
            self.refuse(call, Reason.VALUE_VARIES, "it is called with more than positions, a value and a word")
        kinds = tuple(places[word] for word in words)
        if not _are_theirs(call, places[at[0]]):
            self.refuse(call, Reason.VALUE_VARIES, "it is given positions that are computed from those of the tokens")
        op = Positions(call.path, at[0], "".join(values), "".join(words), kinds)
        self._check(op, call, twin)
        return op

    def _check(self, op: Positions, call: Call, twin: nn.Module) -> None:
        """Run it: rows must not depend on one another, on how many there are, or on the other value's numbers."""
        kind = "".join(op.kinds)
        try:
            with torch.no_grad(), torch.device("cpu"), Exact():
                same = _agrees(op, kind, twin)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, NotImplementedError) as error:
            self.refuse(call, Reason.CANNOT_RUN, f"it does not run alone: {str(error).splitlines()[0]}")
        if not same:
            self.refuse(call, Reason.VALUE_VARIES, "what it gives for a position depends on more than the position")


def _agrees(op: Positions, kind: str, twin: nn.Module) -> bool:
    def give(*positions: int, width: int = 1) -> Any:
        like = torch.full((1, width, width), float(width), dtype=torch.float64)
        return called(twin, op, torch.tensor([positions]), like, kind)

    table, late = give(*range(40)), give(_LATE, 5)
    pairs = [
        (rows(table, torch.tensor([_SOME])), give(*_SOME, width=7)),
        (rows(late, torch.tensor([[0]])), give(_LATE)),
        (rows(late, torch.tensor([[1]])), give(5)),
    ]
    return all(_near(mine, theirs) for mine, theirs in pairs)


def _holds_positions(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64 and value.ndim == 2 and len(value) == 1


def _are_theirs(call: Call, given: torch.Tensor) -> bool:
    """Whether a prompt's tokens have the given positions, as far as these are known: others may be beyond a table."""
    arguments = (node.meta for node in call.graph.nodes if "argument" in node.meta)
    known = next((one.get("shadow") for one in arguments if one["value"] is given), None) if given.is_meta else given
    return known is None or torch.equal(known[0], torch.arange(known.shape[-1]))


def _is_rows(output: Any, tokens: int) -> bool:
    values = output if isinstance(output, tuple) else (output,)
    return bool(values) and all(
        isinstance(v, torch.Tensor) and v.is_floating_point() and v.ndim == 3 and tuple(v.shape[:2]) == (1, tokens)
        for v in values
    )


def _near(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, torch.Tensor):
        return mine.shape == theirs.shape and mine.dtype == theirs.dtype and torch.allclose(mine, theirs, 0, _BOUND)
    return len(mine) == len(theirs) and all(map(_near, mine, theirs))
