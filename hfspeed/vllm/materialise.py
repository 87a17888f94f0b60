"""From meta to memory: parameters on the device in their dtype, buffers with the author's values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from hfspeed.planner.dtypes import dtype_of


@contextlib.contextmanager
def in_own_dtype(root: nn.Module, path: str) -> Iterator[None]:
    """Build ``path`` in float32 where its author asks for that, else in the served dtype."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype_of(root, path, default))
    try:
        yield
    finally:
        torch.set_default_dtype(default)


def move_values(root: nn.Module, device: torch.device) -> None:
    """Move every value that the author's ``__init__`` computed to ``device``: buffers, and tensors kept as attributes.

    To be called while the tree is still the author's alone: vLLM's layers keep some tensors on the host on purpose.
    """
    for module in root.modules():
        for key, buffer in list(module._buffers.items()):
            if buffer is not None:
                # what is on meta has no value yet: a checkpoint brings it
                empty = torch.empty_like(buffer, device=device) if buffer.is_meta else None
                module._buffers[key] = buffer.to(device) if empty is None else empty
        for key, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter) and not value.is_meta:
                setattr(module, key, value.to(device))


def materialise(modules: list[tuple[str, nn.Module]], root: nn.Module, device: torch.device) -> None:
    """Give the parameters that stayed the author's memory on ``device``; their values come from the checkpoint.

    Args:
        modules: the author's modules by path. vLLM's layers make their own parameters, some on meta on purpose.
        root: the author's ``ForCausalLM``, which knows what stays in float32.
        device: where the model is served.
    """
    made: dict[int, nn.Parameter] = {}
    default = torch.get_default_dtype()
    for path, module in modules:
        for key, parameter in list(module._parameters.items()):
            if parameter is None or not parameter.is_meta:
                continue
            if id(parameter) not in made:
                dtype = dtype_of(root, f"{path}.{key}" if path else key, default)
                kind = dtype if parameter.is_floating_point() else parameter.dtype
                made[id(parameter)] = nn.Parameter(
                    torch.empty(parameter.shape, dtype=kind, device=device), requires_grad=False
                )
            module._parameters[key] = made[id(parameter)]
