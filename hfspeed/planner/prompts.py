"""Prompts of a length, and how long one may be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hfspeed.planner.ends import table_of
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.reference.asking import ids_name


def taken(run: Callable[[int], Any], least: int, most: int) -> int:
    """The longest prompt, up to ``most`` tokens, that ``run`` takes; ``least`` it does take.

    Code of some authors says how much it takes in no way but by raising an error.
    """
    if _runs(run, most):
        return most
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if _runs(run, middle) else (least, middle)
    return least


def _runs(run: Callable[[int], Any], tokens: int) -> bool:
    try:
        run(tokens)
    except AUTHOR_ERRORS:
        return False
    return True


def prompt(model: nn.Module, tokens: int) -> dict[str, Any]:
    """Arguments of one prompt of ``tokens`` tokens, as far as the author's forward takes them."""
    table = table_of(model).weight
    positions = torch.arange(tokens, device=table.device)[None]
    wanted = {
        ids_name(model): (positions * 7 + 3) % table.shape[0],
        "position_ids": positions,
        "use_cache": False,
    }
    taken = inspect.signature(model.forward).parameters
    if any(entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken.values()):
        return wanted
    return {name: value for name, value in wanted.items() if name in taken}
