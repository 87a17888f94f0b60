"""Calls of modules that run on weights other than their own, or under a transform of functions."""

from __future__ import annotations

import os
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from hfspeed.graph.positions import package_of, place_at
from hfspeed.refusal import Place

_TORCH = str(Path(torch.__file__).parent) + os.sep
_CALLING = str(Path(nn.__file__).parent / "modules") + os.sep


def strange(module: nn.Module, held: dict[int, str], frame: FrameType | None) -> tuple[str, Place | None] | None:
    """What is odd about a call of ``module`` that begins in ``frame``, and the line that made it so; mostly ``None``.

    Kernels have the weights that were loaded, laid out anew, and do not look at what a module is given for a moment.

    Args:
        module: about to be called.
        held: every parameter of the model by its identity, as it was before the run.
        frame: who calls it.
    """
    if any(one is not None and id(one) not in held for one in module._parameters.values()):
        return f"`{type(module).__name__}` is called with other weights than its own", _line(frame)
    functorch: Any = torch._C._functorch
    if functorch.maybe_current_level() is not None and any(True for _ in module.parameters()):
        return f"`{type(module).__name__}` is called under a transform of `torch.func`", _line(frame)
    return None


def _line(frame: FrameType | None) -> Place | None:
    """The author's line outside of torch's own functions, where there are any; else the innermost one."""
    own: FrameType | None = None
    inside = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_TORCH):
            inside = inside or not file.startswith(_CALLING)
        elif package_of(frame) != "hfspeed":
            own = own or frame
            if inside:
                return place_at(frame)
        frame = frame.f_back
    return place_at(own) if own is not None else None
