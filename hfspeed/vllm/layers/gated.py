"""``act(first half) * second half`` as vLLM's fused kernels."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional
from vllm.model_executor.layers.activation import GeluAndMul, SiluAndMul

from hfspeed.plan import Gated
from hfspeed.vllm.site import Site


class SiluProduct(SiluAndMul):
    """vLLM's kernel; on CPUs the product is written over the activation, which saves a tensor."""

    def forward_cpu(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., 2 * size]`` to ``[..., size]``."""
        gate, up = x.chunk(2, -1)
        return functional.silu(gate).mul_(up)


def gated(op: Gated, site: Site) -> None:
    """The kernel for the op's activation, as a child of the author's module."""
    site.put(op.path, _kernel(op))


def _kernel(op: Gated) -> nn.Module:
    if op.act == "silu":
        return SiluProduct()
    return GeluAndMul(approximate="tanh" if op.act == "gelu_tanh" else "none")
