"""A module that sends tokens through chosen experts, however it is spelled, becomes one kernel."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

from hfspeed.example import Example
from hfspeed.graph.record import Call
from hfspeed.pattern.expert_form import expert_form
from hfspeed.pattern.probe import CannotProbe
from hfspeed.pattern.replacement import Replacement
from hfspeed.plan import Experts
from hfspeed.refusal import Reason

_PACKED: Final = {
    "gate_up": "nn.Parameter(torch.empty(4, 24, 16))",
    "down": "nn.Parameter(torch.empty(4, 16, 12))",
}
_LOOP: Final = """
y = torch.zeros_like(x)
for number in ids.unique().tolist():
    token, slot = torch.where(ids == number)
    gate, up = F.linear(x[token], self.gate_up[number]).chunk(2, -1)
    y.index_add_(0, token, F.linear({hidden}, self.down[number]) * weights[token, slot, None])
return y
"""


class ChosenExperts(Replacement):
    """Tokens, the experts chosen for each, and weights come in; the weighted sum of what the experts give goes out."""

    name = "experts"

    fuses = (
        Example(_LOOP.format(hidden="F.silu(gate) * up"), children=_PACKED),
        Example(_LOOP.format(hidden="F.gelu(up.clamp(max=7.0)) * gate.clamp(-7.0, 7.0)"), children=_PACKED),
        Example(
            """
            up = torch.einsum("td,tkdf->tkf", x, self.up[ids]) + self.up_bias[ids]
            each = torch.einsum("tkf,tkfd->tkd", F.relu(up).square(), self.down[ids])
            return (each * weights[..., None]).sum(1)
            """,
            children={
                "up": "nn.Parameter(torch.empty(4, 16, 12))",
                "up_bias": "nn.Parameter(torch.empty(4, 12))",
                "down": "nn.Parameter(torch.empty(4, 12, 16))",
            },
        ),
    )
    refuses = (
        Example(
            _LOOP.format(hidden="torch.sin(gate) * up"), children=_PACKED, reason=Reason.EXPERTS_AS_WRITTEN
        ),
        Example(
            _LOOP.format(hidden="F.silu(gate) * up * self.scale[number]"),
            children=_PACKED | {"scale": "nn.Parameter(torch.empty(4))"},
            reason=Reason.EXPERTS_AS_WRITTEN,
        ),
    )

    def sees(self, call: Call) -> bool:
        stacks = any(p is not None and p.ndim == 3 for p in call.module._parameters.values())
        return stacks and _takes(call) is not None and isinstance(call.output, torch.Tensor)

    def plan(self, call: Call, twin: nn.Module, later: Sequence[Call] = ()) -> Experts:
        found = _takes(call)
        assert found is not None
        takes, inputs, top_k = found
        try:
            return expert_form(twin, call.path, takes, inputs, top_k)
        except CannotProbe as why:
            self.refuse(call, Reason.EXPERTS_AS_WRITTEN, f"`{call.cls.__name__}` stays as written: {why}")


def _takes(call: Call) -> tuple[tuple[str, ...], int, int] | None:
    """Names of tokens, ids and weights in the author's forward, width of a token, and experts per token."""
    try:
        bound = inspect.signature(call.cls.forward).bind(call.module, *call.args, **call.kwargs)
    except TypeError:
        return None
    given = {name: value for name, value in list(bound.arguments.items())[1:] if value is not None}
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    if len(given) != 3 or len(tensors) != 3:
        return None
    ids = [name for name, value in tensors.items() if not value.is_floating_point() and value.ndim == 2]
    if len(ids) != 1:
        return None
    chosen = tensors[ids[0]]
    floats = [name for name in tensors if name != ids[0]]
    weights = [name for name in floats if tensors[name].shape == chosen.shape]
    if len(weights) == 2:  # tokens as wide as there are experts per token: the first comes first, as everywhere
        weights = weights[1:]
    if len(weights) != 1:
        return None
    (tokens,) = (name for name in floats if name != weights[0])
    if tensors[tokens].ndim != 2 or tensors[tokens].shape[0] != chosen.shape[0]:
        return None
    return (tokens, ids[0], weights[0]), int(tensors[tokens].shape[1]), int(chosen.shape[1])
