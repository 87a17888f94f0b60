"""Experts in plain torch, each rank with its share of every expert, or with its share of the experts."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hfspeed.pattern.expert_math import computed
from hfspeed.plan import Experts, shares
from hfspeed.reference.ranks import Alone, Group


def shapes(op: Experts) -> dict[str, tuple[int, ...]]:
    """The author's parameters by name, and their shapes."""
    wide = op.inner * (2 if op.gated and len(op.up) == 1 else 1)

    def matrix(outs: int, ins: int) -> tuple[int, ...]:
        return (op.count, ins, outs) if op.turned else (op.count, outs, ins)

    found = dict.fromkeys(op.up, matrix(wide, op.inputs)) | {op.down: matrix(op.inputs, op.inner)}
    found |= dict.fromkeys(op.up_bias, (op.count, wide))
    return found | ({op.down_bias: (op.count, op.inputs)} if op.down_bias else {})


def whole(op: Experts, parts: Callable[..., list[torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The author's parameters, every expert's in one tensor.

    Args:
        op: says which.
        parts: gives the tensors of one parameter, of the shapes it is asked for.
    """
    found = {}
    for name, shape in shapes(op).items():
        held = parts(op, name, (shape[1:],) * op.count if op.apart else (shape,))
        found[name] = torch.stack(held) if op.apart else held[0]
    return found


class ExpertShare(nn.Module):
    """One rank's share of every expert, or its experts where they are ``spread``; called as the author's module is.

    Keeps the author's plain attributes, which the block around it may read.
    """

    def __init__(
        self,
        op: Experts,
        tensors: dict[str, torch.Tensor],
        author: nn.Module,
        group: Group,
        spread: Group | None = None,
    ) -> None:
        super().__init__()
        for name, value in vars(author).items():
            if name not in vars(self) and not name.startswith("_"):
                setattr(self, name, value)
        self.op, self.group, self.whole = op, spread or group, spread is not None
        self.first, self.stop = 0, op.count
        if spread is not None:
            self.first, self.stop = shares.experts(op.count, spread.rank, spread.size)
            tensors = {name: tensor[self.first : self.stop] for name, tensor in tensors.items()}
            group = Alone()
        self.order = list(op.takes) if op.apart else list(inspect.signature(type(author).forward).parameters)[1:]
        for name, tensor in tensors.items():
            self.register_parameter(name.replace(".", "__"), nn.Parameter(_own(op, name, tensor, group).clone()))

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """``[tokens, inputs]``: the weighted sum over each token's experts."""
        op, named = self.op, dict(zip(self.order, args, strict=False)) | kwargs
        x, ids, weights = (named[name] for name in op.takes)
        if op.skips:
            nobody = ids >= op.count
            ids, weights = ids.masked_fill(nobody, 0), weights.masked_fill(nobody, 0)
        if self.whole:
            away = (ids < self.first) | (ids >= self.stop)
            ids, weights = (ids - self.first).masked_fill(away, 0), weights.masked_fill(away, 0)
        given = x[:, None].expand(-1, op.top_k, -1)
        given = given * weights[..., None] if op.weighs_input else given
        tensors: dict[str, torch.Tensor] = {n.replace("__", "."): p for n, p in self.named_parameters()}
        if op.down_bias and self.group.rank > 0 and not self.whole:
            tensors[op.down_bias] = torch.zeros_like(tensors[op.down_bias])  # a sum over ranks has it once
        each = computed(op, tensors, given, ids)
        total = (each if op.weighs_input else each * weights[..., None]).sum(1)
        return self.group.all_reduce(total.to(x.dtype))


def _own(op: Experts, name: str, tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's share of one parameter."""
    if group.size == 1 or name == op.down_bias:
        return tensor
    start, stop = shares.span(op.inner, group.rank, group.size)
    if name == op.down:
        return tensor[:, start:stop] if op.turned else tensor[..., start:stop]
    dim = 2 if op.turned and name not in op.up_bias else 1
    if not op.gated or len(op.up) == 2:
        return tensor.narrow(dim, start, stop - start)
    if op.interleaved:
        return tensor.narrow(dim, 2 * start, 2 * (stop - start))
    halves = tensor.chunk(2, dim)
    return torch.cat([half.narrow(dim, start, stop - start) for half in halves], dim)
