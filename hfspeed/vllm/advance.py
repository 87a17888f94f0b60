"""One more token of each of some sequences, by vLLM's own kernel where that computes what ours does."""

from __future__ import annotations

import functools
from typing import Any

import torch

from hfspeed.recurrences import Kernel
from hfspeed.recurrences.convolution import Convolution
from hfspeed.recurrences.kernel import Operands, Settings
from hfspeed.recurrences.ssd import StateSpaceDuality
from hfspeed.vllm.delta import stepped, takes
from hfspeed.vllm.kernels import cpu_convolved_once, cpu_state_update
from hfspeed.vllm.scan import AGREE as ROUNDED
from hfspeed.vllm.scan import Kept, Widened, memory, near, packed

AGREE = 1e-5
"""The relative error, in float32, up to which two kernels compute the same."""


def advanced(
    kernel: Kernel, given: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor, kept: Kept
) -> torch.Tensor:
    """As `Kernel.advance`; ``kept`` is the call's own."""
    if isinstance(kernel, Convolution) and states.device.type == "cpu" and _convolves(kernel, given, settings, states):
        return _convolved(given, settings, states, pages, kept)
    if takes(kernel, given, settings, states):
        return stepped(given, settings, states, pages)
    on_cpu = states.device.type == "cpu" and states.dtype == torch.float32
    if on_cpu and isinstance(kernel, StateSpaceDuality) and agrees():
        return _updated(kernel, given, settings, states, pages)
    return kernel.advance(given, settings, states, pages)


def _convolves(kernel: Convolution, given: Operands, settings: Settings, states: torch.Tensor) -> bool:
    """Whether vLLM's kernel gives our numbers on such operands, which is tried once on random ones."""
    weight, bias, x = given["weight"], given["bias"], given["x"]
    assert weight is not None
    assert x is not None
    kinds = x.dtype, weight.dtype, states.dtype, bias.dtype if bias is not None else None
    return _steps_agree(kernel, tuple(weight.shape), kinds, settings["activation"])


@functools.cache
def _steps_agree(kernel: Convolution, shape: tuple[int, int], kinds: tuple[Any, ...], activation: str | None) -> bool:
    source = torch.Generator().manual_seed(0)

    def some(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=source, dtype=torch.float32)

    (channels, width), settings, pages = shape, {"activation": activation}, torch.tensor([2, 0])
    given = {
        "x": some(2, channels, 1).to(kinds[0]),
        "weight": some(*shape).to(kinds[1]),
        "bias": some(channels).to(kinds[3]) if kinds[3] else None,
    }
    states = memory(3, (channels, width - 1), kinds[2], kernel)
    states.copy_(some(*states.shape))
    mine = states.clone()
    wide = {role: value.float() if value is not None else None for role, value in given.items()}
    wanted = kernel.advance(wide, settings, mine, pages)
    try:
        found = _convolved(given, settings, states, pages, {})
    except (RuntimeError, TypeError, AttributeError):
        return False
    return near(wanted, found, ROUNDED.get(found.dtype, 0.0)) and torch.equal(mine, states)


def _convolved(
    given: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor, kept: Kept
) -> torch.Tensor:
    x, weight = given["x"], given["weight"]
    assert x is not None
    assert weight is not None
    silu = settings["activation"] is not None
    with Widened(states, pages.int()) as wide:
        args = x[:, :, 0], packed(weight, kept), given["bias"], wide.states, wide.pages
        return cpu_convolved_once(*args, silu=silu)[:, :, None]


def _updated(
    kernel: StateSpaceDuality, given: Operands, settings: Settings, states: torch.Tensor, pages: torch.Tensor
) -> torch.Tensor:
    """By vLLM's kernel, which changes states in place. Steps are made as the author's library does."""
    x, dt, a, b, c = (given[name] for name in ("x", "dt", "A", "B", "C"))
    assert x is not None
    assert dt is not None
    assert a is not None
    assert b is not None
    assert c is not None
    steps, skip = kernel.steps(dt, given["dt_bias"], settings), given["D"]
    size, n = states.shape[2:]
    out = torch.empty(x.shape[0], *x.shape[2:], dtype=x.dtype)
    cpu_state_update(
        states,
        x[:, 0],
        steps[:, 0, :, None].expand(-1, -1, size),
        a.float()[:, None, None].expand(-1, size, n),
        b[:, 0],
        c[:, 0],
        skip if skip is None or skip.ndim == 2 else skip[:, None].expand(-1, size),
        pages,
        out,
    )
    return out[:, None]


@functools.cache
def agrees() -> bool:
    """Whether vLLM's kernel is there and gives our numbers, which is tried once on random ones in float32."""
    kernel, source = StateSpaceDuality(), torch.Generator().manual_seed(0)

    def some(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=source)

    given = {"x": some(3, 1, 4, 8), "dt": some(3, 1, 4), "B": some(3, 1, 2, 16), "C": some(3, 1, 2, 16)}
    given |= {"A": -some(4).exp(), "D": some(4), "dt_bias": some(4)}
    states, pages = some(5, 4, 8, 16), torch.tensor([4, 1, 2])
    settings, mine = {**kernel.usual, "dt_softplus": True}, states.clone()
    wanted = kernel.advance(given, settings, states, pages)
    try:
        found = _updated(kernel, given, settings, mine, pages)
    except (RuntimeError, TypeError, AttributeError):
        return False
    return all(_near(one, other) for one, other in ((wanted, found), (states, mine)))


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= AGREE * one.abs().max())
