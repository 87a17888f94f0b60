"""One more token of each sequence by the gated delta rule, in two passes over its state by a kernel of vLLM's."""

from __future__ import annotations

import functools
from typing import Any

import torch

from hfspeed.recurrences.delta import EPS, GatedDelta
from hfspeed.recurrences.kernel import Operands, Settings
from hfspeed.vllm.kernels import cpu_state_update
from hfspeed.vllm.scan import AGREE, VALUES, memory, near

MOST = 1e4
"""What a logarithm of a decay is at most, in absolute terms: nothing is left then, and nothing times it is a number."""


def takes(kernel: Any, given: Operands, settings: Settings, states: torch.Tensor) -> bool:
    """Whether `stepped` gives our numbers on such operands, which is tried once on random ones."""
    if type(kernel) is not GatedDelta or states.device.type != "cpu" or states.dtype != torch.float32:
        return False
    shapes = tuple((role, tuple(value.shape[2:]), value.dtype) for role, value in given.items() if value is not None)
    return _agrees(kernel, shapes, tuple(settings.items()))


def stepped(given: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """As `GatedDelta.advance`, by two steps of state-space duality, ``h = exp(t a) h + t x B`` and ``y = h C``.

    ``h`` is a state with values before keys, as it lies in its page. The first step lets it decay and reads what the
    key finds: ``t = g``, ``a = 1``, ``x = 0``, ``C = k``. The second adds the correction and reads what the query
    finds: ``t = 1``, ``a = 0``, ``x = beta (v - y)``, ``B = k``, ``C = q``.
    """
    q, k, v, g, beta = (_one(given[name]) for name in ("q", "k", "v", "g", "beta"))
    both, lying = torch.stack([q, k]).float(), states.transpose(-1, -2)
    if settings["use_qk_l2norm_in_kernel"]:
        both.mul_(both.square().sum(-1, keepdim=True).add_(EPS).rsqrt_())
    queries, keys = both.unbind()
    nothing, steps, ones, zeros = _constants(v.shape, k.shape[-1])
    read, decays = torch.empty_like(nothing), g.float().clamp_(min=-MOST)[..., None].expand(v.shape)
    cpu_state_update(lying, nothing, decays, ones, keys, keys, None, pages, read)
    wrong = torch.sub(v, read).mul_(beta[..., None])
    cpu_state_update(lying, wrong, steps, zeros, keys, queries, None, pages, read)
    return read.mul_(k.shape[-1] ** -0.5 if settings["scale"] is None else settings["scale"]).to(v.dtype)[:, None]


@functools.lru_cache(maxsize=64)
def _constants(shape: torch.Size, keys: int) -> tuple[torch.Tensor, ...]:
    """Zeros and ones of the size of a result, and for each of its elements and every key a one and a zero."""
    one, flat = torch.ones(1, 1, 1), (*shape[1:], keys)
    return torch.zeros(shape), one.expand(shape), one.expand(flat), torch.zeros(1, 1, 1).expand(flat)


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
