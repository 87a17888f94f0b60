"""A model in one dtype throughout, whatever its author made in another."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def in_dtype(model: Model, dtype: torch.dtype) -> Model:
    """Bring every floating point parameter and buffer of ``model`` to ``dtype``; complex ones to its complex kind.

    In half precision buffers are float32: what is loaded in half precision keeps them so, and frequencies need it.

    ``nn.Module.to`` would drop the imaginary part of a buffer, as rotations are sometimes kept in.
    """
    wide = dtype if dtype.itemsize > 2 else torch.float32
    pairs = torch.complex128 if dtype is torch.float64 else torch.complex64
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None and parameter.is_floating_point():
                parameter.data = parameter.data.to(dtype)
        for name, buffer in module._buffers.items():
            if buffer is not None and (buffer.is_floating_point() or buffer.is_complex()):
                module._buffers[name] = buffer.to(pairs if buffer.is_complex() else wide)
    return model
