"""A module that computes a root-mean-square norm, however it is spelled, becomes one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

from hfspeed.example import Example
from hfspeed.graph.nodes import function_name
from hfspeed.graph.record import Call
from hfspeed.pattern.probe import CannotProbe, rms_norm
from hfspeed.pattern.replacement import Replacement
from hfspeed.plan import Norm
from hfspeed.refusal import Reason

_REDUCTIONS: Final = {"mean", "rms_norm", "norm", "vector_norm", "var", "sum", "layer_norm", "std"}
_WEIGHT: Final = {"weight": "nn.Parameter(torch.ones(16))"}


class RootMeanSquareNorm(Replacement):
    """The last dimension is divided by its root mean square, and perhaps multiplied by a weight."""

    name = "rms_norm"

    fuses = (
        Example(
            "return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))",
            children=_WEIGHT,
        ),
        Example(
            """
            h = x.float()
            h = h / torch.sqrt((h * h).mean(dim=-1, keepdim=True) + 0.1)
            return (h * (1.0 + self.weight.float())).type_as(x)
            """,
            children=_WEIGHT,
        ),
        Example("return x * (x.square().mean(-1, keepdim=True) + 1e-5).pow(-0.5)"),
        Example("return F.rms_norm(x, (16,), self.weight + 1, 1e-5)", children=_WEIGHT),
    )
    refuses = (
        Example(
            "return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6)",
            children=_WEIGHT,
            reason=Reason.NOT_A_NORM,
        ),
        Example(
            "return (self.weight * 2) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)",
            children=_WEIGHT,
            reason=Reason.NOT_A_NORM,
        ),
        Example(
            "return self.weight.sigmoid() * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)",
            children=_WEIGHT,
            reason=Reason.NOT_A_NORM,
        ),
        Example(
            "return self.weight * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 0.1)",
            children=_WEIGHT,
            reason=Reason.NOT_A_NORM,
        ),
        Example("return F.layer_norm(x, (16,))", reason=Reason.NOT_A_NORM),
    )

    def sees(self, call: Call) -> bool:
        values = [v for v in (*call.args, *call.kwargs.values()) if isinstance(v, torch.Tensor)]
        known = call.cls.__module__.startswith("torch.") and call.cls is not nn.RMSNorm
        alone = len(values) == 1 and not known and not any(True for _ in call.module.children())
        if not alone or not isinstance(call.output, torch.Tensor) or values[0].ndim < 2:
            return False
        reduces = any(function_name(node) in _REDUCTIONS for node in call.graph.nodes)
        return reduces and call.output.shape == values[0].shape

    def plan(self, call: Call, twin: nn.Module, later: Sequence[Call] = ()) -> Norm:
        (value,) = [v for v in (*call.args, *call.kwargs.values()) if isinstance(v, torch.Tensor)]
        size = int(value.shape[-1])
        shapes = [tuple(p.shape) for p in call.module.parameters()]
        if shapes not in ([], [(size,)]):
            found = "it has parameters other than one weight per element"
            self.refuse(call, Reason.NOT_A_NORM, found)
        if shapes and (saved := call.module.state_dict().keys() - dict(call.module.named_parameters())):
            found = f"beside its weight, a checkpoint has its `{min(saved)}`"
            self.refuse(call, Reason.NOT_A_NORM, found)
        try:
            eps, kind, _ = rms_norm(twin, value.ndim, size)
        except CannotProbe as why:
            self.refuse(call, Reason.NOT_A_NORM, str(why))
        return Norm(call.path, size, eps, kind)
