"""Linear ops in plain torch: each rank's share of the author's weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hfspeed.plan import Column, Heads, Row, Stacked, Whole, shares
from hfspeed.plan.linears import taken
from hfspeed.reference import layers

if TYPE_CHECKING:
    from hfspeed.reference.build import Site


def column(op: Column, site: Site) -> None:
    """A share of the outputs."""
    spans = shares.rows_of(op, site.rank, site.ranks)
    weight = layers.picked(site.whole(op, "weight", op.outputs, op.inputs), spans)
    bias = layers.picked(site.whole(op, "bias", op.outputs), spans) if op.bias else None
    site.put(op.path, layers.Linear(weight, bias))


def row(op: Row, site: Site) -> None:
    """A share of the inputs; the sums are added."""
    start, stop = shares.span(op.inputs, site.rank, site.ranks)
    weight = site.whole(op, "weight", op.outputs, op.inputs)[:, start:stop]
    bias = site.whole(op, "bias", op.outputs) if op.bias else None
    site.put(op.path, layers.RowLinear(weight.clone(), bias, site.group))


def whole(op: Whole, site: Site) -> None:
    """All of it; bare parameters are gone from where they were, so that whoever still reads them fails."""
    bias = site.whole(op, "bias", op.outputs) if op.bias else None
    kind = layers.WideLinear if op.wide else layers.Linear
    site.put(op.path, kind(site.whole(op, "weight", op.outputs, op.inputs).clone(), bias))
    for name in taken(op):
        delattr(site.root.get_submodule(op.path.rpartition(".")[0]), name)


def stacked(op: Stacked | Heads, site: Site) -> None:
    """The own share of each part, side by side."""
    wide, spans = shares.parts(op), shares.part_pieces(op, site.rank, site.ranks)

    def own(name: str, *rest: int) -> torch.Tensor:
        tensors = site.parts(op, name, tuple((width, *rest) for width in wide))
        return torch.cat([layers.picked(tensor, of) for tensor, of in zip(tensors, spans, strict=True)])

    above, _, name = op.path.rpartition(".")
    parent = site.root.get_submodule(above)
    # Whoever still calls a part must fail: its weights live elsewhere now.
    for part in set(op.parts):
        delattr(parent, part)
    setattr(parent, name, layers.Linear(own("weight", op.inputs), own("bias") if op.bias else None))
    setattr(parent, f"{name}_sizes", list(shares.widths(op, site.ranks)))
    if isinstance(op, Heads):
        setattr(parent, f"{name}_head_sizes", shares.head_sizes(op))
