"""What ranks exchange, with what autograd makes of it on the way back: sums, gathers, own shares."""

from __future__ import annotations

from typing import Any

import torch

from hfspeed.reference.ranks import Group


def added(value: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over the ranks; on the way back each rank's gradient is already that of the sum."""
    return _Added.apply(value, group)  # type: ignore[no-untyped-call,no-any-return]


def handed(value: torch.Tensor, group: Group) -> torch.Tensor:
    """The value itself; on the way back the ranks' gradients are added, because each has only its share."""
    return _Handed.apply(value, group)  # type: ignore[no-untyped-call,no-any-return]


def gathered(value: torch.Tensor, group: Group, dim: int = -1) -> torch.Tensor:
    """Every rank's value side by side; on the way back each keeps its own share."""
    return _Gathered.apply(value, group, dim)  # type: ignore[no-untyped-call,no-any-return]


def own(value: torch.Tensor, group: Group, dim: int = -1) -> torch.Tensor:
    """This rank's share of a value that all hold; on the way back the shares are put side by side."""
    return _Own.apply(value, group, dim)  # type: ignore[no-untyped-call,no-any-return]


def exchanged(pieces: list[torch.Tensor], group: Group) -> list[torch.Tensor]:
    """Piece ``n`` goes to rank ``n``; what came from each rank. Gradients go back the same way."""
    return list(_Exchanged.apply(group, *pieces))  # type: ignore[no-untyped-call]


def share(length: int, rank: int, ranks: int) -> tuple[int, int]:
    """First and last of what a rank holds: equal shares rounded up, so that the last ranks may have less or nothing."""
    step = -(-length // ranks)
    return min(rank * step, length), min((rank + 1) * step, length)


def _part(value: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    start, stop = share(value.shape[dim], group.rank, group.size)
    return value.narrow(dim, start, stop - start).contiguous()


def _all(value: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
    return torch.cat(group.all_to_all([value] * group.size), dim)


class _Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group) -> torch.Tensor:  # noqa: ARG004  autograd's signature
        return group.all_reduce(value).clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:  # noqa: ARG004  as above
        return grads[0], None


class _Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return ctx.group.all_reduce(grads[0]), None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim, ctx.size = group, dim, value.shape[dim]
        pieces = group.all_to_all([value] * group.size)
        ctx.start = sum(piece.shape[dim] for piece in pieces[: group.rank])
        return torch.cat(pieces, dim)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return grads[0].narrow(ctx.dim, ctx.start, ctx.size).contiguous(), None, None


class _Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, group: Group, dim: int) -> torch.Tensor:
        ctx.group, ctx.dim = group, dim
        return _part(value, group, dim)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _all(grads[0], ctx.group, ctx.dim), None, None


class _Exchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Group, *pieces: torch.Tensor) -> Any:
        ctx.group = group
        return tuple(piece.clone() for piece in group.all_to_all(pieces))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, *ctx.group.all_to_all(grads)
