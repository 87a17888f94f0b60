"""Stateful functions over vLLM's scheduled tokens: one page of states per decoder layer and sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hfspeed.plan import Recurrence
from hfspeed.recurrences import kernel_of
from hfspeed.recurrences.call import Called, Turn
from hfspeed.vllm.advance import advanced
from hfspeed.vllm.scan import scanned
from hfspeed.vllm.site import Site
from hfspeed.vllm.states import Scheduled, Slot, States, scheduled, states_of
from hfspeed.vllm.versions import register_splitting_op


class Stateful(nn.Module):
    """What the author's module calls; takes and gives what the author's function does."""

    def __init__(self, op: Recurrence, states: States, ranks: int) -> None:
        super().__init__()
        self.called, self.turn = Called(op, kernel_of(op.kind)), Turn(op.calls)
        self.prefix, self.first = states.prefix, states.add(self.called, torch.get_default_dtype(), ranks)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """Compute over the tokens of the step, ``[1, …]``."""
        operands = self.called.operands(args, keywords)
        out = self.called.kernel.room(operands)
        ordered = [operands[role] for role in self.called.kernel.roles]
        number = self.first + self.turn.next()
        # what nobody traces needs no operation around it
        run = torch.ops.vllm.hfspeed_recurrence if torch.compiler.is_compiling() else hfspeed_recurrence
        run(out, ordered, number, self.prefix)
        return self.called.result(out)


def recurrence(op: Recurrence, site: Site) -> None:
    """A child of the module at ``op.path`` under the promised name; its states join those of its decoder layer."""
    setattr(site.root.get_submodule(op.path), op.name, Stateful(op, states_of(op.path, site), site.ranks))


def hfspeed_recurrence(out: torch.Tensor, operands: list[torch.Tensor | None], number: int, layer: str) -> None:
    """Run one kernel over the scheduled tokens: single tokens as one batch, longer pieces one after the other.

    Args:
        out: written; laid out as the result of the kernel.
        operands: in the order of the kernel's roles.
        number: which state.
        layer: the name of the `States`.
    """
    states, now = scheduled(layer)
    assert isinstance(states, States)
    if now is None:  # vLLM tries the model before there is a cache
        out.zero_()
        return
    slot = states.slots[number]
    axis = slot.called.kernel.axis
    if (left := out.shape[axis] - now.rows) > 0:  # filled up to a size that was compiled
        out.narrow(axis, now.rows, left).zero_()
    given, mine = dict(zip(slot.called.kernel.roles, operands, strict=True)), states.views(number)
    _singles(slot, given, mine, now, out)
    _pieces(slot, given, mine, now, out)


def _singles(
    slot: Slot, given: dict[str, torch.Tensor | None], states: torch.Tensor, now: Scheduled, out: torch.Tensor
) -> None:
    """One more token of each of some sequences, which become a batch."""
    if not now.singles:
        return
    kernel = slot.called.kernel
    mine = dict(given)
    for role, dim in kernel.tokens.items():
        if (value := given[role]) is not None:
            mine[role] = _as_batch(value, dim, now.singles)
    result = advanced(kernel, mine, slot.called.settings, states, now.single_pages, slot.kept)
    out.narrow(kernel.axis, 0, now.singles).copy_(_as_row(result, kernel.axis))


def _pieces(
    slot: Slot, given: dict[str, torch.Tensor | None], states: torch.Tensor, now: Scheduled, out: torch.Tensor
) -> None:
    """Several tokens of each sequence: all at once by a kernel of vLLM's, or one sequence at a time."""
    kernel = slot.called.kernel
    if now.side is None:
        return
    span, whole = now.span, dict(given)
    for role, dim in kernel.tokens.items():
        if (value := given[role]) is not None:
            whole[role] = value.narrow(dim, *span)
    done = scanned(kernel, whole, slot.called.settings, states, now.side, slot.kept)
    if done is not None:
        out.narrow(kernel.axis, *span).copy_(done)
        return
    for piece in now.pieces:
        mine = dict(given)
        for role, dim in kernel.tokens.items():
            if (value := given[role]) is not None:
                mine[role] = value.narrow(dim, *piece.span)
        before = states[piece.page] if piece.goes_on else torch.zeros_like(states[piece.page])
        result, after = kernel.run(mine, slot.called.settings, before[None])
        states[piece.page] = after[0].to(states.dtype)
        out.narrow(kernel.axis, *piece.span).copy_(result)


def _as_batch(value: torch.Tensor, dim: int, count: int) -> torch.Tensor:
    """The first tokens of ``[1, …, tokens, …]`` as sequences of one token."""
    return value.narrow(dim, 0, count).transpose(0, dim)


def _as_row(value: torch.Tensor, dim: int) -> torch.Tensor:
    """Sequences of one token side by side; undoes `_as_batch`."""
    return value.transpose(0, dim)


def _shapes(out: torch.Tensor, operands: list[torch.Tensor | None], number: int, layer: str) -> None:
    """Nothing but ``out`` changes, and its shape is known."""


SPLITS = register_splitting_op(hfspeed_recurrence, _shapes, mutates=["out"])
