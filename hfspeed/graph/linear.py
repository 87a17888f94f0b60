"""What a linear child is: `nn.Linear`, or a module that was run and multiplies by a matrix, kept either way round."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

_SEED = 4_409


@dataclass(frozen=True)
class Shape:
    """A linear's sizes, and whether its author keeps the matrix as ``[inputs, outputs]``."""

    inputs: int
    outputs: int
    bias: bool
    transposed: bool = False


_PROBED: dict[tuple[object, ...], tuple[bool, object]] = {}
"""Verdicts, each with the attributes it was given for, so that no other object can come to have their ids."""


def shape_of(module: nn.Module | None) -> Shape | None:
    """The shape of a linear module; ``None`` for any other. A subclass of `nn.Linear` may compute something else."""
    if module is None or changed(module):
        return None
    if type(module) is nn.Linear:
        return Shape(module.in_features, module.out_features, module.bias is not None)
    shape = _held(module)
    return shape if shape is not None and _probed(module, shape) else None


def changed(module: nn.Module) -> bool:
    """Whether one module does more than its class: it has hooks, or a forward of its own."""
    return bool(module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module))


def _held(module: nn.Module) -> Shape | None:
    """The shape that the parameters suggest, of a class that torch does not have itself."""
    if type(module).__module__.startswith("torch.") or module._modules or module._buffers:
        return None
    held = {name: value for name, value in module._parameters.items() if value is not None}
    weight, bias = held.pop("weight", None), held.pop("bias", None)
    if held or weight is None or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if isinstance(module, nn.Linear):
        return Shape(weight.shape[1], weight.shape[0], bias is not None)
    if bias is None or bias.shape != weight.shape[1:]:
        return None  # without a bias, it may as well be a table of rows
    return Shape(weight.shape[0], weight.shape[1], True, transposed=True)


def _probed(module: nn.Module, shape: Shape) -> bool:
    """Whether ``module`` multiplies and adds, asked once of modules that cannot differ."""
    plain = (bool, int, float, str, type(None))
    own = {k: v for k, v in vars(module).items() if not k.startswith("_")}
    facts = tuple((k, v) if isinstance(v, plain) else (k, id(v)) for k, v in sorted(own.items()))
    key = (type(module), facts, shape)
    if key not in _PROBED:
        _PROBED[key] = (_multiplies(module, shape), own)
    return _PROBED[key][0]


def _multiplies(module: nn.Module, shape: Shape) -> bool:
    """``module(x)`` is ``x @ weight + bias`` for small and for large numbers, on any number of leading dimensions."""
    source = torch.Generator().manual_seed(_SEED)
    twin = copy.copy(module)
    weight = torch.randn(shape.inputs, shape.outputs, generator=source)
    bias = torch.randn(shape.outputs, generator=source) if shape.bias else torch.zeros(shape.outputs)
    kept = weight if shape.transposed else weight.t().contiguous()
    twin._parameters = {"weight": nn.Parameter(kept, False), "bias": nn.Parameter(bias, False) if shape.bias else None}
    # Outside any recorder: what the probe does is no part of a forward.
    with torch.no_grad(), torch._C.DisableTorchFunction(), torch.device("cpu"):
        for lead, scale in (((2, 3), 1e-2), ((1, 4), 1.0), ((3,), 1e4)):
            x = torch.randn(*lead, shape.inputs, generator=source) * scale
            try:
                y = type(module).forward(twin, x)
            except (TypeError, ValueError, RuntimeError, AttributeError, IndexError, NotImplementedError):
                return False
            wanted = x @ weight + bias
            if not isinstance(y, torch.Tensor) or y.shape != wanted.shape:
                return False
            if not torch.allclose(y, wanted, rtol=1e-4, atol=1e-4 * float(wanted.abs().max())):
                return False
    return True
