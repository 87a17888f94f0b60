"""Whether entries fit the model at full size: each module that they split is run alone on meta tensors, as one rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hfspeed.emit import emitted
from hfspeed.errors import PlanError
from hfspeed.graph.record import Call
from hfspeed.graph.tensors import tensors
from hfspeed.plan import Plan
from hfspeed.plan.styles import generic
from hfspeed.planner.build import eager
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.planner.study import Study
from hfspeed.planner.verdicts import key
from hfspeed.reference.build import build
from hfspeed.reference.styles import split


class Shapes:
    """A rank that knows no values: what others would give has the shape of its own."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """The value itself."""
        return value

    def all_gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        """As many of it as there are ranks."""
        return [value] * self.size

    def all_to_all(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The pieces themselves."""
        return list(pieces)

    def barrier(self) -> None:
        """Nobody to wait for."""


def fits(full: Study, entries: Mapping[str, str], ranks: int, kind: str = "tp") -> bool:
    """Whether all that ``entries`` name can be shared out over so many ranks at full size."""
    return not misfit(full, entries, ranks, kind)


def misfit(full: Study, entries: Mapping[str, str], ranks: int, kind: str = "tp") -> str:
    """Why not, in one phrase with the module's path; empty if they fit."""
    for path, module in full.model.named_modules():
        for name, one in module.named_parameters(recurse=False):
            style = entries.get(generic(f"{path}.{name}"))
            if style == "grouped_gemm" and one.shape[0] % ranks:
                return f"`{path}.{name}` has {one.shape[0]} experts"
            if style is not None and kind == "tp" and one.ndim == 3 and all(size % ranks for size in one.shape[1:]):
                return f"`{path}.{name}` of shape {[*one.shape]} does not divide"
    seen = set()
    for call in full.recording.calls.values():
        kind_of = key(call), tuple(tuple(one.shape) for one in call.module.parameters())
        if not _touched(call, entries) or kind_of in seen:
            continue
        seen.add(kind_of)
        if why := _stops(full, call, entries, ranks):
            return why
    return ""


def _touched(call: Call, entries: Mapping[str, str]) -> bool:
    """Whether the module calls children that have entries, and can run on meta."""
    if call.closed:
        return False
    return any(node.op == "call_module" and generic(str(node.target)) in entries for node in call.graph.nodes)


def _stops(full: Study, call: Call, entries: Mapping[str, str], ranks: int) -> str:
    """Why one rank's share of the module does not run; empty where the module does not run alone in any case."""
    if any(inner.closed for path, inner in full.recording.calls.items() if path.startswith(f"{call.path}.")):
        return ""
    try:
        wanted = _shape(full, call, {}, 1)
    except AUTHOR_ERRORS:
        return ""
    try:
        found = _shape(full, call, entries, ranks)
    except AUTHOR_ERRORS as error:
        return f"`{call.path}` does not run on one rank's share ({told(error)})"
    return "" if wanted == found else f"`{call.path}` gives {found}, not {wanted}"


def _shape(full: Study, call: Call, entries: Mapping[str, str], ranks: int) -> tuple[int, ...]:
    """What shape the module's first result has on one of so many ranks."""
    config: Any = full.model.config.get_text_config(decoder=True)
    with torch.no_grad():
        rank = split(call.module, entries, Shapes(ranks), under=call.path, config=config)
        eager(rank.root)  # stricter about shapes than a recorded leaf
        result = rank.root(*map(_fresh, call.args), **{name: _fresh(value) for name, value in call.kwargs.items()})
    return next((tuple(one.shape) for one in tensors(result)), ())


def _fresh(value: Any) -> Any:
    """An argument; a store of what earlier modules made has their shapes from the recorded run, so it is left out."""
    if isinstance(value, torch.Tensor | tuple | list | bool | int | float | str | slice | None):
        return value
    return None


def share_stops(full: Study, plan: Plan, path: str) -> str:
    """Why a share of the module at ``path`` does not run as planned, on two ranks at full size; empty if it does."""
    call = full.recording.calls[path]
    try:
        with torch.no_grad():
            built = build(
                plan, full.model, emitted(plan), ranks=2, group=Shapes(2), under=path, strict=False
            ).get_submodule(path)
            found = built(*map(_fresh, call.args), **{name: _fresh(value) for name, value in call.kwargs.items()})
    except (*AUTHOR_ERRORS, PlanError) as error:
        return told(error)
    wanted, given = (next((tuple(one.shape) for one in tensors(every)), ()) for every in (call.output, found))
    return "" if wanted == given else f"it gives {given}, not {wanted}"
