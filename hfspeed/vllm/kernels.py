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


def cpu_packed(weight: Tensor) -> Tensor:
    """Weights ``[channels, width]`` of a causal convolution as vLLM's kernels for CPUs want them."""
    from vllm import _custom_ops

    packed: Tensor = _custom_ops.causal_conv1d_weight_pack(weight.contiguous())
    return packed


def cpu_convolved(
    x: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    states: Tensor,
    starts: Tensor,
    pages: Tensor,
    goes_on: Tensor,
    *,
    silu: bool,
) -> Tensor:
    """VLLM's causal convolution for CPUs, ``[channels, tokens]`` to the same; states are changed in place.

    Args:
        x: of several sequences side by side, channels next to one another.
        packed: by `cpu_packed`.
        bias: ``[channels]``.
        states: the last inputs, ``[pages, channels, width - 1]``, channels next to one another.
        starts: where each sequence begins, and the end, as int32.
        pages: of each sequence, as int32.
        goes_on: which of them have a state.
        silu: what follows.
    """
    from vllm import _custom_ops

    out: Tensor = _custom_ops.causal_conv1d_fwd_cpu(
        x.t().contiguous().t(), packed, bias, states, starts, pages, goes_on, silu, True
    )
    return out


def cpu_convolved_once(
    x: Tensor, packed: Tensor, bias: Tensor | None, states: Tensor, pages: Tensor, *, silu: bool
) -> Tensor:
    """The same for one more token of each sequence, ``[sequences, channels]`` to the same."""
    from vllm import _custom_ops

    out: Tensor = _custom_ops.causal_conv1d_update_cpu(x.contiguous(), states, packed, bias, silu, pages, True)
    return out


def cpu_delta_rule(
    operands: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    states: Tensor,
    starts: Tensor,
    pages: Tensor,
    *,
    unit: bool,
    eps: float,
) -> Tensor:
    """VLLM's gated delta rule for CPUs, ``[1, tokens, heads, size]``; states are changed in place.

    Args:
        operands: query, key and value ``[1, tokens, heads, size]``, logarithms of decays, rates.
        states: ``[pages, heads, size, size]``; those of new sequences are zero.
        starts: where each sequence begins, and the end, as int32.
        pages: of each sequence, as int32.
        unit: whether queries and keys are made of length one.
        eps: what is added to the squares for that.
    """
    from vllm import _custom_ops

    query, key, value, decays, rates = (one.contiguous() for one in operands)
    out, _ = _custom_ops.chunk_gated_delta_rule_cpu(
        query, key, value, decays, rates, states, True, starts, False, unit, pages, eps
    )
    found: Tensor = out
    return found


def cpu_scan(
    x: Tensor, steps: Tensor, a: Tensor, b: Tensor, c: Tensor, skip: Tensor | None, states: Tensor, starts: Tensor
) -> Tensor:
    """VLLM's scan of state-space duality for CPUs, ``[tokens, heads, size]`` to the same.

    Args:
        x: of several sequences side by side.
        steps: ``[tokens, heads]`` in float32, with bias and softplus.
        a: ``[heads]`` in float32.
        b: ``[tokens, groups, n]``.
        c: like ``b``.
        skip: ``[heads]`` in float32.
        states: one of each sequence, ``[sequences, heads, size, n]`` in float32, changed in place.
        starts: where each sequence begins, and the end, as int32.
    """
    from vllm import _custom_ops

    x, b, c = (value.contiguous() for value in (x, b, c))
    out = torch.empty_like(x)
    _custom_ops.mamba_chunk_scan_fwd_cpu(out, states, x, steps.contiguous(), a, b, c, skip, None, starts)
    return out
