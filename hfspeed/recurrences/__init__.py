"""Stateful functions of tokens, in plain torch: what linear attention and state-space models are made of."""

from __future__ import annotations

from collections.abc import Iterable

from hfspeed.recurrences.convolution import Convolution
from hfspeed.recurrences.delta import FineGatedDelta, GatedDelta
from hfspeed.recurrences.kernel import Bound, Kernel, Unsupported
from hfspeed.recurrences.linear import LinearRecurrence
from hfspeed.recurrences.selective import SelectiveScan
from hfspeed.recurrences.shift import Shift
from hfspeed.recurrences.ssd import StateSpaceDuality
from hfspeed.recurrences.wkv import WeightedKeyValue

__all__ = ["KERNELS", "Bound", "Kernel", "Unsupported", "kernel_of", "named", "told_by"]

KERNELS: tuple[Kernel, ...] = (
    Convolution(),
    Shift(),
    StateSpaceDuality(),
    SelectiveScan(),
    GatedDelta(),
    FineGatedDelta(),
    LinearRecurrence(),
    WeightedKeyValue(),
)
"""Every kind; the order is only a habit, since no two share a function's name."""


def kernel_of(kind: str) -> Kernel:
    """The kernel of a plan's ``kind``."""
    return next(kernel for kernel in KERNELS if kernel.kind == kind)


def told_by(parameters: Iterable[str]) -> Kernel | None:
    """The kernel that a function with these arguments computes, by their names alone."""
    found = frozenset(parameters)
    return next((kernel for kernel in KERNELS if kernel.telling and kernel.telling <= found), None)


def named(function: str) -> Kernel | None:
    """The kernel that a function of this name computes, by its name alone; ``None`` if no library has it."""
    for kernel in KERNELS:
        if function in kernel.functions or any(function == f"torch_{name}" for name in kernel.functions):
            return kernel
    return None
