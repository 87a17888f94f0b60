"""Pieces of several sequences side by side, by vLLM's own kernels for CPUs where those compute what ours do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch

from hfspeed.recurrences import Kernel
from hfspeed.recurrences.convolution import Convolution
from hfspeed.recurrences.delta import EPS, GatedDelta
from hfspeed.recurrences.kernel import Operands, Settings
from hfspeed.recurrences.ssd import StateSpaceDuality
from hfspeed.vllm import kernels

AGREE = {torch.float32: 1e-4, torch.bfloat16: 0.02}
"""Relative errors up to which two kernels compute the same; each rounds what it is given in its own order."""


@dataclass(frozen=True)
class Side:
    """Sequences side by side.

    Attributes:
        starts: where each begins, and the end, as int32.
        pages: of each, as int32.
        goes_on: which of them have a state already.
    """

    starts: torch.Tensor
    pages: torch.Tensor
    goes_on: torch.Tensor


Kept = dict[str, torch.Tensor]
"""What a call keeps from step to step: weights in the kernel's layout."""


def scanned(
    kernel: Kernel, given: Operands, settings: Settings, states: torch.Tensor, side: Side, kept: Kept
) -> torch.Tensor | None:
    """The result for all pieces, whose states are changed where they lie; ``None`` if only our kernel computes it.

    Args:
        kernel: what is computed.
        given: operands by role, of all pieces.
        settings: as the kernel's `usual` names them.
        states: ``[pages, *state]``.
        side: which tokens are whose.
        kept: the call's own.
    """
    run = RUNS.get(type(kernel))
    if run is None or states.device.type != "cpu" or not fits(run, kernel, given, settings, states.dtype):
        return None
    return run(kernel, given, settings, states, side, kept)


def _convolution(
    kernel: Kernel,  # noqa: ARG001  one signature
    given: Operands,
    settings: Settings,
    states: torch.Tensor,
    side: Side,
    kept: Kept,
) -> torch.Tensor:
    x, weight = given["x"], given["weight"]
    assert x is not None
    assert weight is not None
    silu = settings["activation"] is not None
    with Widened(states, side.pages) as wide:
        at = side.starts, wide.pages, side.goes_on
        out = kernels.cpu_convolved(x[0], packed(weight, kept), given["bias"], wide.states, *at, silu=silu)
    return out[None]


BYTES = 8
"""Of the widest integers."""
TAPS = 4
"""Inputs that vLLM's kernels for convolutions look at; they take no fewer, and no more."""


def packed(weight: torch.Tensor, kept: Kept) -> torch.Tensor:
    """Weights in the kernel's layout, packed anew when they have changed; fewer than `TAPS` are led by zeros."""
    if "weight" not in kept or not _equal(kept["weight"], weight):
        whole = torch.nn.functional.pad(weight, (max(0, TAPS - weight.shape[1]), 0))
        kept["weight"], kept["packed"] = weight.clone(), kernels.cpu_packed(whole)
    return kept["packed"]


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit by bit; eight bytes at a time where that is possible, since this is asked at every step."""
    sizes = one.shape[-1], one.storage_offset(), other.storage_offset()
    whole = one.dtype == other.dtype and not any(size * one.element_size() % BYTES for size in sizes)
    if whole and one.shape == other.shape and one.is_contiguous() and other.is_contiguous():
        return torch.equal(one.view(torch.int64), other.view(torch.int64))
    return torch.equal(one, other)


class Widened:
    """States of a convolution as the kernel wants them: where it has fewer inputs, in a copy that is led by zeros.

    Args:
        states: ``[pages, channels, width - 1]``.
        pages: of each sequence, as int32; in ``pages`` are those of the copy.
    """

    def __init__(self, states: torch.Tensor, pages: torch.Tensor) -> None:
        self.theirs, self.at, self.missing = states, pages, TAPS - 1 - states.shape[2]
        self.states, self.pages = states, pages

    def __enter__(self) -> Self:
        if self.missing > 0:
            self.at = self.at.long()
            mine = self.theirs[self.at].transpose(1, 2)
            self.states = torch.nn.functional.pad(mine, (0, 0, self.missing, 0)).transpose(1, 2)
            self.pages = torch.arange(len(mine), dtype=torch.int32)
        return self

    def __exit__(self, *_: object) -> None:
        if self.missing > 0:
            self.theirs[self.at] = self.states[:, :, self.missing :]


def _delta(
    kernel: Kernel,  # noqa: ARG001  one signature
    given: Operands,
    settings: Settings,
    states: torch.Tensor,
    side: Side,
    kept: Kept,  # noqa: ARG001
) -> torch.Tensor:
    if settings["scale"] is not None:
        raise TypeError("the kernel has a scale of its own")
    ordered: Any = tuple(given[role] for role in ("q", "k", "v", "g", "beta"))
    mine, unit = _copied(states, side), bool(settings["use_qk_l2norm_in_kernel"])
    places = torch.arange(len(mine), dtype=torch.int32)
    out = kernels.cpu_delta_rule(ordered, mine, side.starts, places, unit=unit, eps=EPS)
    _returned(mine, states, side)
    return out


def _state_space(
    kernel: Kernel,
    given: Operands,
    settings: Settings,
    states: torch.Tensor,
    side: Side,
    kept: Kept,  # noqa: ARG001  one signature
) -> torch.Tensor:
    assert isinstance(kernel, StateSpaceDuality)
    x, dt, a, b, c, skip = (given[name] for name in ("x", "dt", "A", "B", "C", "D"))
    assert x is not None
    assert dt is not None
    assert a is not None
    assert b is not None
    assert c is not None
    mine = _copied(states, side)
    steps = kernel.steps(dt, given["dt_bias"], settings)[0]
    skip = skip.float() if skip is not None else None
    out = kernels.cpu_scan(x[0], steps, a.float(), b[0], c[0], skip, mine, side.starts)
    _returned(mine, states, side)
    return out[None]


def _copied(states: torch.Tensor, side: Side) -> torch.Tensor:
    """The states of the sequences side by side, ``[sequences, *state]``; zeros of those that begin."""
    mine = torch.zeros(len(side.pages), *states.shape[1:], dtype=states.dtype)
    for one, page, goes_on in zip(mine.unbind(), side.pages.tolist(), side.goes_on.tolist(), strict=True):
        if goes_on:
            one.copy_(states[page])
    return mine


def _returned(mine: torch.Tensor, states: torch.Tensor, side: Side) -> None:
    """Put them back into their pages; one by one, which takes a third of the time of all at once."""
    for one, page in zip(mine.unbind(), side.pages.tolist(), strict=True):
        states[page] = one


Run = Callable[[Kernel, Operands, Settings, torch.Tensor, Side, Kept], torch.Tensor]
RUNS: dict[type[Kernel], Run] = {Convolution: _convolution, GatedDelta: _delta, StateSpaceDuality: _state_space}
_KNOWN: dict[Any, bool] = {}
VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "g": lambda x: -x.abs(),
    "beta": torch.sigmoid,
    "dt": torch.abs,
    "A": lambda x: -x.exp(),
    "k": lambda x: torch.nn.functional.normalize(x, dim=-1),
}
"""Operands that are not just any numbers."""


def fits(run: Run, kernel: Kernel, given: Operands, settings: Settings, kept_in: torch.dtype) -> bool:
    """Whether ``run`` gives our numbers on operands of these shapes, which is tried once on random ones."""
    shapes = tuple((role, *_shape(kernel, role, value)) for role, value in given.items() if value is not None)
    key = run, kernel.kind, shapes, tuple(settings.items()), kept_in
    if key not in _KNOWN:
        _KNOWN[key] = _agrees(run, kernel, shapes, settings, kept_in)
    return _KNOWN[key]


def _shape(kernel: Kernel, role: str, value: torch.Tensor) -> tuple[tuple[int, ...], torch.dtype]:
    """Of an operand; of one that follows the tokens, as if there were `TOKENS` of them."""
    shape = list(value.shape)
    if role in kernel.tokens:
        shape[0], shape[kernel.tokens[role]] = 1, TOKENS
    return tuple(shape), value.dtype


LENGTHS = 70, 3, 1
"""Of a new sequence and of two that go on; the first is longer than the pieces that kernels compute at once."""
TOKENS = sum(LENGTHS)


def _agrees(run: Run, kernel: Kernel, shapes: Iterable[Any], settings: Settings, kept_in: torch.dtype) -> bool:
    source = torch.Generator().manual_seed(0)

    def some(role: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        value = torch.randn(shape, generator=source, dtype=torch.float32)
        return VALUES.get(role, torch.clone)(value).to(dtype)

    given = dict.fromkeys(kernel.roles) | {role: some(role, shape, dtype) for role, shape, dtype in shapes}
    shape = kernel.state(given)
    states = memory(4, shape, kept_in, kernel)
    states.copy_(torch.randn(4, *shape, generator=source, dtype=torch.float32) * 0.1)
    goes_on, pages = torch.tensor([False, True, True]), torch.tensor([2, 1, 3])
    at = [0, LENGTHS[0], LENGTHS[0] + LENGTHS[1], TOKENS]
    wanted, mine = [], states.clone()
    for number, page in enumerate(pages.tolist()):
        piece = {
            role: value.narrow(kernel.tokens[role], at[number], LENGTHS[number])
            if role in kernel.tokens and value is not None
            else value
            for role, value in given.items()
        }
        before = mine[page] if goes_on[number] else torch.zeros_like(mine[page])
        out, after = kernel.run(_wide(piece), settings, before[None].float())
        wanted.append(out)
        mine[page] = after[0].to(kept_in)
    side = Side(torch.tensor(at, dtype=torch.int32), pages.int(), goes_on)
    try:
        found = run(kernel, given, settings, states, side, {})
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return False
    bound = AGREE.get(found.dtype, 0.0)
    return near(torch.cat(wanted, kernel.axis), found, bound) and near(mine, states, bound)


def memory(pages: int, shape: tuple[int, ...], dtype: torch.dtype, kernel: Kernel) -> torch.Tensor:
    """States as they lie in vLLM's pages."""
    if not kernel.last_first:
        return torch.zeros(pages, *shape, dtype=dtype)
    return torch.zeros(pages, *shape[:-2], shape[-1], shape[-2], dtype=dtype).transpose(-1, -2)


def near(wanted: torch.Tensor, found: torch.Tensor, bound: float) -> bool:
    """Whether all differences are small beside the largest number."""
    return bool((wanted.float() - found.float()).abs().max() <= bound * wanted.float().abs().max())


def _wide(given: Operands) -> dict[str, torch.Tensor | None]:
    return {role: value.float() if value is not None else None for role, value in given.items()}
