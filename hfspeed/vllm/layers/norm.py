"""Root-mean-square norms as vLLM's, and modules that need the whole of a split value."""

from __future__ import annotations

import torch
from torch import nn
from vllm.distributed import tensor_model_parallel_all_gather
from vllm.model_executor.layers.layernorm import GemmaRMSNorm, RMSNorm

from hfspeed.plan import Keep, Norm
from hfspeed.plan.shares import span
from hfspeed.reference.layers import on_whole
from hfspeed.vllm.kernels import cpu_rms_norm, whole_vectors
from hfspeed.vllm.outside import outside
from hfspeed.vllm.site import Site


class PlainNorm(RMSNorm):
    """vLLM's norm, which on CPUs uses vLLM's own kernel wherever that takes the tensors.

    Where vLLM compiles, it takes the norm apart instead, here as there.
    """

    def forward_cpu(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """``[..., size]`` to the same; with ``residual`` their sum is normed, and returned beside it."""
        weight = self.weight.data if self.has_weight else None
        alike = (weight is None or weight.dtype == x.dtype) and whole_vectors(x.shape[-1])
        if residual is not None or self.variance_size_override is not None or not alike:
            return self.forward_native(x, residual)
        return cpu_rms_norm(x, weight, self.variance_epsilon)


class OnePlusNorm(GemmaRMSNorm):
    """vLLM's norm by ``1 + w``, which on CPUs uses vLLM's own kernel in float32, as ``1 + w`` needs."""

    def forward_cpu(
        self, x: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """``[..., size]`` to the same; with ``residual`` their sum is normed, and returned beside it."""
        if residual is not None or x.dtype == torch.float64 or not whole_vectors(x.shape[-1]):
            return self.forward_native(x, residual)
        return cpu_rms_norm(x.float(), self.weight.float() + 1.0, self.variance_epsilon).to(x.dtype)


def norm(op: Norm, site: Site) -> None:
    """A norm of ``op.size`` elements, with weight ``w``, ``1 + w`` or none."""
    layer: nn.Module
    if op.weight == "one_plus":
        layer = OnePlusNorm(op.size, eps=op.eps)
    else:
        layer = PlainNorm(op.size, eps=op.eps, has_weight=op.weight == "plain")
    site.put(op.path, layer)
    gather(layer, op.units, site)


def keep(op: Keep, site: Site) -> None:
    """The author's module, or bare parameter, as it stands; where its input is split, on the whole of it."""
    if op.gives:
        outside(site.root.get_submodule(op.path), site.prefix(op.path), op.gives, site)
    if op.units:
        gather(site.root.get_submodule(op.path), op.units, site)


def gather(module: nn.Module, units: int, site: Site) -> None:
    """Let ``module`` see its input whole and hand on the own share of its result; ``units`` blocks are split.

    Hooks, so that the module's class and its parameters' names stay what they are.
    """
    if not units or site.ranks == 1:
        return
    repeats = max(1, site.ranks // units)
    start, stop = span(units, site.rank, site.ranks)

    def whole(value: torch.Tensor) -> torch.Tensor:
        everything = tensor_model_parallel_all_gather(value.contiguous(), dim=-1)
        if repeats > 1:
            shares = everything.unflatten(-1, (units, repeats, -1))
            everything = shares[..., 0, :].flatten(-2)
        return everything

    def own(out: torch.Tensor) -> torch.Tensor:
        size = out.shape[-1] // units
        return out[..., start * size : stop * size].contiguous()

    on_whole(module, whole, own)
