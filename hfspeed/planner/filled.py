"""Buffers that are allocated first and filled later: by the constructor, by `_init_weights` or by a checkpoint."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch import nn

from hfspeed.errors import SubjectError

EMPTY = "hfspeed_empty"
"""The attribute of a buffer that says where it was registered without values."""


@contextlib.contextmanager
def real_buffers() -> Iterator[None]:
    """Buffers that are registered without values, on meta, are real all the same, and whoever fills them can.

    Until then they hold numbers that nobody writes; see `settle`.
    """
    original = nn.Module.register_buffer

    def register_buffer(module: nn.Module, name: str, tensor: torch.Tensor | None, persistent: bool = True) -> None:
        if tensor is not None and tensor.is_meta:
            frame = sys._getframe(1)
            tensor = torch.full(tensor.shape, _unwritten(tensor.dtype), dtype=tensor.dtype, device="cpu")
            setattr(tensor, EMPTY, f"{frame.f_code.co_filename}:{frame.f_lineno}")
        original(module, name, tensor, persistent)

    setattr(nn.Module, "register_buffer", register_buffer)  # noqa: B010  mypy knows no other way
    try:
        yield
    finally:
        setattr(nn.Module, "register_buffer", original)  # noqa: B010


def settle(model: nn.Module) -> None:
    """Look who filled them; what a checkpoint has to fill goes back to meta.

    Raises:
        SubjectError: nobody fills one that no checkpoint holds, so that its numbers are whatever memory held before.
    """
    saved = set(model.state_dict())
    for path, module in model.named_modules():
        for name, buffer in module._buffers.items():
            where = getattr(buffer, EMPTY, None)
            if buffer is None or where is None or not bool(_same(buffer).any()):
                continue
            full = f"{path}.{name}" if path else name
            if full not in saved:
                raise SubjectError(
                    f"{where}: `{full}` is allocated without values, no checkpoint holds it, the constructor "
                    "and `_init_weights` leave it so; fill it in place where it is registered, or in `_init_weights`"
                )
            module._buffers[name] = buffer.to("meta")


def _unwritten(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def _same(buffer: torch.Tensor) -> torch.Tensor:
    """Where it still is as `real_buffers` made it; of yes and no nobody can tell."""
    if buffer.dtype is torch.bool:
        return torch.zeros((), dtype=torch.bool)
    wanted = _unwritten(buffer.dtype)
    return buffer.isnan() if buffer.is_floating_point() or buffer.is_complex() else buffer == wanted
