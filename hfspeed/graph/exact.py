"""Arithmetic for proofs: code that asks for float32 on the way gets float64, so that rounding hides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class Exact(TorchFunctionMode):
    """Every cast to float32 becomes one to float64. Belongs to a thread: enter it on each rank.

    Norms, softmaxes and rotary embeddings compute in float32 whatever they are given. In a proof that would leave
    errors of 1e-7, and a dropped epsilon is no larger; without it two correct orders of summation agree to 1e-14.
    Of equal numbers ``topk`` takes the first, where torch promises nothing and takes others in a longer row.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func`` with float64 wherever an argument is float32."""
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        if func in {torch.topk, torch.Tensor.topk}:
            return _first(*args, **(kwargs or {}))
        wide = {name: _wide(value) for name, value in (kwargs or {}).items()}
        if func is torch.full and wide.get("dtype") is None and isinstance([*args, *wide.values()][1], float):
            wide["dtype"] = torch.float64  # the least float64, written so, would not fit in the default
        if func in _MAKES and wide.get("dtype") is None:
            wide["dtype"] = torch.float64  # what is made in the default dtype meets what is not
        return func(*(_wide(value) for value in args), **wide)


_MAKES = {torch.zeros, torch.ones, torch.empty, torch.eye, torch.linspace}


def _first(input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """As ``torch.topk``, by its names; what it gives can be viewed in another shape, as there."""
    del sorted
    values, indices = (one.narrow(dim, 0, k) for one in input.sort(dim=dim, descending=largest, stable=True))
    return torch.return_types.topk((values.contiguous(), indices.contiguous()))


def _wide(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value
