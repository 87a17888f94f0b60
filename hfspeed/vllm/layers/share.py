"""Tensors of which each rank holds its own part, along one dimension and segment by segment."""

from __future__ import annotations

from torch import nn

from hfspeed.plan import Share
from hfspeed.plan.shares import rows_of
from hfspeed.reference.layers import picked
from hfspeed.vllm.site import Site


def share(op: Share, site: Site) -> None:
    """Keep the own part: of a parameter the shape, since its values come later, else the values."""
    if site.ranks == 1:
        return
    module, name = site.parent(op.path)
    tensor = getattr(module, name)
    mine = picked(tensor.detach(), rows_of(op, site.rank, site.ranks), op.dim)
    setattr(module, name, nn.Parameter(mine, requires_grad=False) if isinstance(tensor, nn.Parameter) else mine)
