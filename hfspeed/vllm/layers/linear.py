"""Linear ops as vLLM's parallel linears."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.linear import (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    ReplicatedLinear,
    RowParallelLinear,
    UnquantizedLinearMethod,
)
from vllm.model_executor.utils import set_weight_attrs

from hfspeed.plan import Column, Heads, Row, Stacked, Whole
from hfspeed.plan.linears import taken
from hfspeed.plan.segments import count
from hfspeed.plan.shares import head_sizes, widths
from hfspeed.planner.dtypes import dtype_of
from hfspeed.vllm.site import Site


class UnquantizedAnyStrides(UnquantizedLinearMethod):
    """As vLLM's, for inputs laid out in memory in any way: kernels of some platforms take rows only."""

    def apply(self, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        return super().apply(layer, x if x.stride(-1) == 1 else x.contiguous(), bias)


def any_strides(layer: Any) -> Any:
    """``layer``, which takes transposed values from now on; the class that adapters look for stays."""
    if type(layer.quant_method) is UnquantizedLinearMethod:
        layer.quant_method.__class__ = UnquantizedAnyStrides
    return layer


class Bare(torch.nn.Module):
    """A bare parameter of the author's in the layout of the platform's kernel, and a vector that is added.

    It is no linear of vLLM's, so that neither adapters nor quantisation look for it: it was none to its author.
    """

    def __init__(self, op: Whole, site: Site) -> None:
        super().__init__()
        parent, _ = site.parent(op.path)
        above, _, _ = op.path.rpartition(".")
        for name in taken(op):
            delattr(parent, name)
        name = f"{above}.{op.matrix}" if above else op.matrix
        self.kept = dtype_of(site.root, name, torch.get_default_dtype())
        dtype = torch.float32 if op.wide else self.kept
        self.quant_method = UnquantizedAnyStrides()
        self.weight = self._empty(op.outputs, op.inputs, dtype=dtype)
        self.bias = self._empty(op.outputs, dtype=dtype) if op.vector else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[..., inputs]`` to ``[..., outputs]``."""
        return self.quant_method.apply(self, x, self.bias)

    def load(self, parameter: torch.nn.Parameter, loaded: torch.Tensor) -> None:
        """Keep ``loaded``, rounded as the author's parameter is."""
        assert parameter.shape == loaded.shape, (parameter.shape, loaded.shape)
        parameter.data.copy_(loaded.to(self.kept))

    def _empty(self, *shape: int, dtype: torch.dtype) -> torch.nn.Parameter:
        made = torch.nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)
        set_weight_attrs(made, {"weight_loader": self.load})
        return made


def column(op: Column, site: Site) -> None:
    """A linear whose outputs are split over the ranks."""
    if op.segments and site.ranks > 1:
        site.put(op.path, _own_rows(op, [count(op.segments, site.ranks)], site))
        return
    site.put(op.path, any_strides(ColumnParallelLinear(op.inputs, op.outputs, bias=op.bias, **_common(op.path, site))))


def row(op: Row, site: Site) -> None:
    """A linear that reads a split value; vLLM adds the partial sums, and the bias once."""
    site.put(op.path, any_strides(RowParallelLinear(op.inputs, op.outputs, bias=op.bias, **_common(op.path, site))))


def whole(op: Whole, site: Site) -> None:
    """A linear that every rank holds in full."""
    if op.matrix:
        site.put(op.path, Bare(op, site))
        return
    site.put(op.path, any_strides(ReplicatedLinear(op.inputs, op.outputs, bias=op.bias, **_common(op.path, site))))


def stacked(op: Stacked, site: Site) -> None:
    """Several linears of one input, or one packed linear, as one GEMM."""
    if op.segments and site.ranks > 1:
        _side_by_side(op, _own_rows(op, list(widths(op, site.ranks)), site), site)
        return
    layer = MergedColumnParallelLinear(
        op.inputs, list(op.sizes), bias=op.bias, disable_tp=not op.split, **_common(op.path, site)
    )
    _side_by_side(op, layer, site)


def heads(op: Heads, site: Site) -> None:
    """Query, key and value as one GEMM, split by heads."""
    layer = QKVParallelLinear(
        op.inputs,
        op.head_size,
        op.heads,
        op.kv_heads,
        bias=op.bias,
        v_head_size=op.value_size,
        disable_tp=not op.split,
        **_common(op.path, site),
    )
    _side_by_side(op, layer, site)


def _own_rows(op: Column | Stacked, sizes: list[int], site: Site) -> Any:
    """A linear of the rows that this rank holds, which are picked as they are loaded: vLLM's own cut one range."""
    layer = ReplicatedLinear(op.inputs, sum(sizes), bias=op.bias, **_common(op.path, site))

    def load(parameter: torch.nn.Parameter, mine: torch.Tensor, part: int | None = None) -> None:
        start = sum(sizes[: part or 0])
        size = sum(sizes) if part is None else sizes[part]
        if tuple(mine.shape) != (size, *parameter.shape[1:]):
            raise ValueError(f"{list(mine.shape)} for {size} rows of {list(parameter.shape)}")
        parameter.data.narrow(0, start, size).copy_(mine)

    for parameter in layer.parameters():
        parameter.weight_loader = load  # as vLLM's own layers say how they are loaded
    return layer


def _common(path: str, site: Site) -> dict[str, Any]:
    return {"quant_config": site.quant_config, "prefix": site.prefix(path), "return_bias": False}


def _side_by_side(op: Stacked | Heads, layer: Any, site: Site) -> None:
    """Take the parts away, put the one layer in, and keep the promised widths beside it."""
    parent, name = site.parent(op.path)
    for part in op.parts:
        if part in parent._modules:
            delattr(parent, part)
    site.put(op.path, any_strides(layer))
    setattr(parent, f"{name}_sizes", list(widths(op, site.ranks)))
    if isinstance(op, Heads):
        setattr(parent, f"{name}_head_sizes", head_sizes(op))
