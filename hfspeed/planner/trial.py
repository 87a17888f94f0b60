"""Does a configuration still build and run: the question that shrinking asks of every change."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hfspeed.errors import SubjectError
from hfspeed.graph.record import record
from hfspeed.planner.blame import line_of
from hfspeed.planner.build import build, size_of
from hfspeed.planner.ends import table_of
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.reference.asking import ids_name
from hfspeed.refusal import Place

TOKENS = 100
"""Longer than any prompt of a proof, so that no table of positions is cut too short for one."""


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        size: elements of parameters and buffers.
        depth: modules in the longest list: the decoder layers.
        vocabulary: rows of the token table.
        error: why it did not run; empty when it did.
        place: the author's line that raised it.
    """

    size: int
    depth: int
    vocabulary: int = 0
    error: str = ""
    place: Place | None = None


def attempt(
    model_class: type[Any],
    config: Any,
    *,
    device: str = "meta",
    run: bool = True,
    interface: bool = True,
    last: bool = False,
    built: Any = None,
) -> Outcome:
    """Build ``config`` on ``device`` and, with ``run``, do one forward of `TOKENS` tokens without a cache.

    ``built`` is that model where somebody has built it already; of its layers, equal ones are run once.
    """
    try:
        model = built if built is not None else build(model_class, config, device=device, interface=interface)
    except SubjectError as error:
        return Outcome(0, 0, error=str(error), place=error.place)
    vocabulary = table_of(model).weight.shape[0]
    outcome = Outcome(size_of(model), depth_of(model), vocabulary)
    if not run:
        return outcome
    try:
        if built is not None:
            record(model, inputs(model, device, last), share=True)
        else:
            with torch.no_grad():
                model(**inputs(model, device, last))
    except AUTHOR_ERRORS as error:
        return replace(outcome, error=told(error), place=line_of(error, Path(inspect.getfile(model_class)).parent))
    return outcome


def inputs(model: Any, device: str, last: bool = False) -> dict[str, Any]:
    """The arguments of a plain prompt, those that the author's forward takes; with ``last`` it has the last token."""
    vocab = table_of(model).weight.shape[0]
    positions = torch.arange(TOKENS, device=device)[None]
    wanted = {ids_name(model): (positions - int(last)) % vocab, "position_ids": positions, "use_cache": False}
    taken = inspect.signature(model.forward).parameters
    if any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken.values()):
        return wanted
    return {name: value for name, value in wanted.items() if name in taken}


def depth_of(model: nn.Module) -> int:
    """The length of the longest ``ModuleList`` that lies in no other: the decoder layers."""
    inner = {
        below
        for module in model.modules()
        if isinstance(module, nn.ModuleList)
        for below in module.modules()
        if below is not module
    }
    outer = [module for module in model.modules() if isinstance(module, nn.ModuleList) and module not in inner]
    return max(map(len, outer), default=0)
