"""Tensors of which each rank holds its own part, along one dimension and segment by segment."""

from __future__ import annotations

import torch
from torch import nn

from hfspeed.plan import Share
from hfspeed.plan.shares import Span, rows_of
from hfspeed.vllm.site import Site


def share(op: Share, site: Site) -> None:
    """Keep the own part: of a parameter the shape, since its values come later, else the values."""
    if site.ranks == 1:
        return
    module, name = site.parent(op.path)
    tensor = getattr(module, name)
    mine = cut(tensor.detach(), rows_of(op, site.rank, site.ranks), op.dim)
    setattr(module, name, nn.Parameter(mine, requires_grad=False) if isinstance(tensor, nn.Parameter) else mine)


def cut(tensor: torch.Tensor, spans: tuple[Span, ...], dim: int = 0) -> torch.Tensor:
    """Some ranges of a tensor, in a tensor of their own."""
    return torch.cat([tensor.narrow(dim, start, stop - start) for start, stop in spans], dim)
