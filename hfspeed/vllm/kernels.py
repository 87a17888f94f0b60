"""Kernels of vLLM's that its own layers do not use everywhere; what `versions` is for calls, this is for kernels."""

from __future__ import annotations

import torch
from torch import Tensor

VECTOR = 16
"""Kernels for CPUs take that many elements at a time; not all of them check that there are."""


def whole_vectors(size: int) -> bool:
    """Whether the kernels here may be given rows of ``size`` elements: some refuse others, some read beyond them."""
    return size % VECTOR == 0


def rotate_in_place(
    places: Tensor, query: Tensor, key: Tensor | None, head_size: int, table: Tensor, *, interleaved: bool
) -> None:
    """VLLM's rotary kernel: heads ``[tokens, heads * head_size]`` are turned by rows ``places`` of ``table``.

    It must be given two dimensions: with three, the one for CPUs turns the wrong elements.
    """
    from vllm import _custom_ops

    _custom_ops.rotary_embedding(places, query, key, head_size, table, not interleaved)


def cpu_rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """VLLM's own norm kernel for CPUs, which its layers do not use there (``vllm/kernels``: GPUs only).

    It reads rows that follow one another, whatever the strides say, and does not check, so others are copied first.
    """
    x = x.contiguous()
    out = torch.empty_like(x)
    torch.ops._C.rms_norm(out, x, weight, eps)
    return out
