"""Kernels of vLLM's that its own layers do not use everywhere; what `versions` is for calls, this is for kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hfspeed.vllm.artifacts import operation

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


def cpu_experts_isa(held: Any) -> str:
    """The instructions that vLLM's kernel of experts for CPUs uses on ``held``, its holder of their weights.

    Empty where experts or tokens are spread over ranks, or where the weights lie as another kernel wants them.
    """
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
    from vllm.platforms import current_platform

    kind: Any = getattr(held.quant_method, "experts_cls", None)
    parallel = held.moe_config.moe_parallel_config
    spread = parallel.use_ep or parallel.dp_size > 1 or parallel.pcp_size > 1 or parallel.is_sequence_parallel
    if spread or not current_platform.is_cpu() or current_platform.is_zen_cpu():
        return ""
    return str(kind.isa) if CPUUnquantizedExperts in getattr(kind, "__mro__", ()) else ""


def hfspeed_cpu_experts(
    tokens: Tensor,
    weights: Tensor,
    ids: Tensor,
    up: Tensor,
    down: Tensor,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    act: str,
    isa: str,
) -> Tensor:
    """VLLM's kernel of experts for CPUs: ``[tokens, size]``, and for each the weights and numbers of its experts.

    VLLM's runner asks again at every step what was settled when it was built. The sum over ranks that share each expert
    is not in it.
    """
    tokens = tokens.contiguous()
    out = torch.empty_like(tokens)
    choice = weights.float().contiguous(), ids.to(torch.int32).contiguous()
    torch.ops._C.cpu_fused_moe(out, tokens, up, down, up_bias, down_bias, *choice, False, act, isa)
    return out


def _like_tokens(
    tokens: Tensor,
    weights: Tensor,  # noqa: ARG001  one signature
    ids: Tensor,  # noqa: ARG001
    up: Tensor,  # noqa: ARG001
    down: Tensor,  # noqa: ARG001
    up_bias: Tensor | None,  # noqa: ARG001
    down_bias: Tensor | None,  # noqa: ARG001
    act: str,  # noqa: ARG001
    isa: str,  # noqa: ARG001
) -> Tensor:
    return torch.empty_like(tokens, memory_format=torch.contiguous_format)


CPU_EXPERTS = operation(hfspeed_cpu_experts, _like_tokens)
"""The same for compiled graphs, which cannot look into the kernel."""


def cpu_state_update(
    states: Tensor,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    skip: Tensor | None,
    pages: Tensor,
    out: Tensor,
) -> None:
    """VLLM's scan of one token for CPUs: states ``[pages, heads, size, n]`` are changed in place, ``out`` is written.

    ``dt`` are steps, with bias and softplus, and each head has one decay: it reads no others. It reads elements that
    follow one another, so others are copied first.
    """
    from vllm import _custom_ops

    x, b, c = (value.contiguous() for value in (x, b, c))
    skip = skip.float() if skip is not None else None
    _custom_ops.selective_state_update_cpu(
        states, x, dt, a, b, c, skip, None, None, False, pages.int(), None, -1, out, None, None
    )
