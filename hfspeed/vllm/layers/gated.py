"""``act(first half) * second half`` as vLLM's fused kernels."""

from __future__ import annotations

from torch import nn
from vllm.model_executor.layers.activation import GeluAndMul, SiluAndMul

from hfspeed.plan import Gated
from hfspeed.vllm.site import Site


def gated(op: Gated, site: Site) -> None:
    """The kernel for the op's activation, as a child of the author's module."""
    site.put(op.path, _kernel(op))


def _kernel(op: Gated) -> nn.Module:
    if op.act == "silu":
        return SiluAndMul()
    return GeluAndMul(approximate="tanh" if op.act == "gelu_tanh" else "none")
