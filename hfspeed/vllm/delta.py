"""One more token of each sequence by the gated delta rule: states are read once, and changed in one more pass."""

from __future__ import annotations

import functools
from typing import Any

import torch

from hfspeed.recurrences.delta import EPS, GatedDelta
from hfspeed.recurrences.kernel import Operands, Settings, heads_of
from hfspeed.vllm.kernels import cpu_state_update
from hfspeed.vllm.scan import AGREE, VALUES, memory, near

LEAST, MOST = 1e-30, 1e4
"""Between these, in absolute terms, logarithms of decays are kept: below, nothing decays; above, nothing is left."""


def takes(kernel: Any, given: Operands, settings: Settings, states: torch.Tensor) -> bool:
    """Whether `stepped` gives our numbers on such operands, which is tried once on random ones."""
    if type(kernel) is not GatedDelta or states.device.type != "cpu" or states.dtype != torch.float32:
        return False
    shapes = tuple((role, tuple(value.shape[2:]), value.dtype) for role, value in given.items() if value is not None)
    return _agrees(kernel, shapes, tuple(settings.items()))


def stepped(given: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """As `GatedDelta.advance`.

    What queries and keys read of a state is one product, before it changes: ``q S' = exp(g) q S + (q k) w``, where
    ``w`` is the correction and ``S' = exp(g) S + k w``. The change is a step of state-space duality, whose own result
    nobody reads: ``h' = exp(t a) h + t x B`` with ``t = g``, ``a = 1``, ``x = k / g`` and ``B = w``.
    """
    q, k, v, g, beta = (_one(given[name]) for name in ("q", "k", "v", "g", "beta"))
    heads, size, width = states.shape[1:]
    both = torch.stack([q, k], 2).float()
    if settings["use_qk_l2norm_in_kernel"]:
        both = both.mul_(both.square().sum(-1, keepdim=True).add_(EPS).rsqrt_())
    both = heads_of(both, heads, 1)
    read = torch.empty(*both.shape[:3], width)
    for one, page, into in zip(both.unbind(), pages.tolist(), read.unbind(), strict=True):
        torch.bmm(one, states[page], out=into)
    queries, keys = both.unbind(2)
    logs = torch.copysign(g.abs().float().clamp_(LEAST, MOST), g)[..., None]
    read.mul_(logs.exp()[..., None])
    wrong = torch.sub(v, read[:, :, 1]).mul_(beta[..., None])
    out = read[:, :, 0].addcmul_((queries * keys).sum(-1, keepdim=True), wrong)
    out.mul_(size**-0.5 if settings["scale"] is None else settings["scale"])
    steps, rate = logs.expand(-1, -1, size), torch.ones(heads)[:, None, None].expand(heads, size, width)
    cpu_state_update(states, keys / logs, steps, rate, wrong, wrong, None, pages, torch.empty(keys.shape))
    return out.to(v.dtype)[:, None]


def _one(value: torch.Tensor | None) -> torch.Tensor:
    """The only token of each sequence."""
    assert value is not None
    return value[:, 0]


@functools.cache
def _agrees(kernel: GatedDelta, shapes: tuple[Any, ...], said: tuple[Any, ...]) -> bool:
    source, settings = torch.Generator().manual_seed(0), dict(said)

    def some(role: str, *shape: int) -> torch.Tensor:
        return VALUES.get(role, torch.clone)(torch.randn(shape, generator=source, dtype=torch.float32))

    given: dict[str, Any] = {role: some(role, 3, 1, *shape).to(dtype) for role, shape, dtype in shapes}
    given["g"][0], given["g"][1, 0, 0] = 0.0, float("-inf")
    wide = {role: value.float() for role, value in given.items()}
    states = memory(5, kernel.state(given), torch.float32, kernel)
    states.copy_(some("", *states.shape))
    mine, pages = states.clone(), torch.tensor([4, 1, 2])
    wanted, after = kernel.run(wide, settings, mine[pages])
    mine[pages] = after
    try:
        found = stepped(given, settings, states, pages)
    except (RuntimeError, TypeError, AttributeError):
        return False
    return near(wanted, found, AGREE.get(found.dtype, 0.0)) and near(mine, states, AGREE[torch.float32])
