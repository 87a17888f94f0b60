"""Modules that are run on whole sequences: what each was given is kept in pages, and each step runs on all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from hfspeed.errors import PlanError
from hfspeed.plan import History
from hfspeed.recurrences.history import NONE, Inputs, dims, joined, width
from hfspeed.recurrences.written import write, written_of
from hfspeed.vllm.outside import outside
from hfspeed.vllm.site import Site
from hfspeed.vllm.states import Piece, States, scheduled, states_of

BYTES = 8
"""Of an element, whatever its dtype."""


class Remembering:
    """A module's forward over the scheduled tokens, each sequence on everything that it has had."""

    def __init__(self, op: History, forward: Callable[..., Any], states: States, longest: int) -> None:
        self.op, self.forward, self.prefix, self.longest = op, forward, states.prefix, longest
        self.count = states.room(BYTES)
        self.rooms = [states.room(longest * width(told) * BYTES) for told in op.inputs if told != NONE]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the author's forward."""
        states, now = scheduled(self.prefix)
        inputs = Inputs(self.op, args, kwargs)
        if now is None:  # vLLM tries the model before there is a cache
            return joined(self.op, list(self._tried(inputs)))
        (pages,) = states.kv_cache
        singles = [Piece(row, 1, page, True) for row, page in enumerate(now.single_pages.tolist())]
        done = [self._piece(inputs, pages[one.page], one) for one in (*singles, *now.pieces)]
        at, dim = inputs.following[0]
        left = inputs.leaves[at].shape[dim] - sum(one.tokens for one in (*singles, *now.pieces))
        if left:  # padding, of which nobody reads the result
            done.append(inputs.padding(self.forward, 0, left))
        return joined(self.op, done)

    def _tried(self, inputs: Inputs) -> Iterator[list[torch.Tensor | None]]:
        """Tokens that belong to nobody, as many at once as a sequence may have."""
        at, dim = inputs.following[0]
        tokens = inputs.leaves[at].shape[dim]
        for start in range(0, tokens, self.longest):
            yield inputs.padding(self.forward, start, min(self.longest, tokens - start))

    def _piece(self, inputs: Inputs, page: torch.Tensor, one: Piece) -> list[torch.Tensor | None]:
        """One sequence: its new tokens are written behind the old ones, and the module runs on all."""
        counter = page[self.count : self.count + BYTES].view(torch.int64)
        before = int(counter[0]) if one.goes_on else 0
        after, whole = before + one.tokens, []
        if after > self.longest:
            raise PlanError(f"{self.op.path}: a sequence of {after} tokens, in room for {self.longest}")
        for room, (dim, new) in zip(self.rooms, inputs.new(*one.span), strict=True):
            rows = new.movedim(dim, 0)
            size = rows[0].numel()
            start = room // new.dtype.itemsize
            kept = page.view(new.dtype)[start : start + self.longest * size].view(self.longest, size)
            kept[before:after] = rows.reshape(one.tokens, size)
            whole.append(kept[:after].view(after, *rows.shape[1:]).movedim(0, dim))
        counter[0] = after
        return inputs.run(self.forward, whole, one.tokens)


def history(op: History, site: Site) -> None:
    """The module stays, with its weights; its forward runs outside of compiled graphs."""
    module = site.root.get_submodule(op.path)
    if op.eager:
        write(module, written_of(op.masks, op.inputs))
    states = states_of(op.path, site)
    longest = site.vllm_config.model_config.max_model_len
    module.forward = Remembering(op, module.forward, states, longest)
    first = next(dim for told, dim in zip(op.inputs, dims(op.inputs), strict=True) if "_" not in told and told != NONE)
    outside(module, site.prefix(op.path), op.gives, site, axis=first)
