"""vLLM's pages of states, and which sequences' tokens are scheduled in a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from vllm.config import get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum

from hfspeed.plan.shares import own_state
from hfspeed.recurrences.call import Called
from hfspeed.vllm.scan import Side
from hfspeed.vllm.site import Site, cache_name


class Pages(nn.Module, MambaBase):
    """A holder of states that vLLM keeps in pages of bytes; a subclass says how many in ``bytes``.

    The page is one state to vLLM, so that copying it for prefix caching copies everything in it.
    """

    bytes: int

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self.prefix = prefix
        self.kv_cache = (torch.tensor([], dtype=torch.int8),)
        get_current_vllm_config().compilation_config.static_forward_context[prefix] = self

    def get_state_shape(self) -> tuple[tuple[int, ...], ...]:
        """One row of bytes."""
        return ((self.bytes,),)

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        """Bytes."""
        return (torch.int8,)

    @property
    def mamba_type(self) -> MambaAttentionBackendEnum:
        """The kind whose metadata says only which tokens belong to which page."""
        return MambaAttentionBackendEnum.SHORT_CONV

    @property
    def is_kv_cache_tp_replicated(self) -> bool:
        """Whether every rank computes whole states."""
        return True

    def get_kv_cache_spec(self, vllm_config: Any) -> Any:
        """As vLLM's; without prefix caching a page lasts for a whole sequence."""
        cache = vllm_config.cache_config
        if cache.mamba_block_size is None:
            cache.mamba_block_size = vllm_config.model_config.max_model_len
        return super().get_kv_cache_spec(vllm_config)


ALIGNMENT = 16
"""Bytes at whose multiples each state begins, so that wide loads are aligned."""


@dataclass(frozen=True)
class Slot:
    """One state in a page: which kernel reads it, and where it lies; ``kept`` is what the kernel keeps for itself."""

    called: Called
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    kept: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def stop(self) -> int:
        """The first byte behind it."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize


class States(Pages):
    """All states of one decoder layer in one page, so that vLLM pads once."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix)
        self.slots: list[Slot] = []
        self.bytes = 0

    @property
    def kv_cache(self) -> tuple[torch.Tensor]:
        """The pages; vLLM gives others when it has measured its memory."""
        return self.pages

    @kv_cache.setter
    def kv_cache(self, pages: tuple[torch.Tensor]) -> None:
        self.pages = pages
        self.seen: dict[int, torch.Tensor] = {}

    def add(self, called: Called, given: torch.dtype, ranks: int = 1) -> int:
        """Make room for the states of a call; the number of the first."""
        first = len(self.slots)
        for _ in range(called.op.calls):
            slot = Slot(called, own_state(called.op, ranks), _kept_in(called, given), self.bytes)
            self.slots.append(slot)
            self.room(slot.stop - slot.start)
        return first

    def room(self, count: int) -> int:
        """Make room for ``count`` bytes; where they begin."""
        start, self.bytes = self.bytes, -(-(self.bytes + count) // ALIGNMENT) * ALIGNMENT
        return start

    @property
    def is_kv_cache_tp_replicated(self) -> bool:
        """Whether no state is split by heads."""
        return not any(slot.called.op.segments for slot in self.slots)

    def views(self, number: int) -> torch.Tensor:
        """The state ``number`` of every page: ``[pages, *state]``."""
        if number not in self.seen:
            self.seen[number] = self._view(self.slots[number], *self.kv_cache)
        return self.seen[number]

    def _view(self, slot: Slot, pages: torch.Tensor) -> torch.Tensor:
        found, shape = pages[:, slot.start : slot.stop].view(slot.dtype), slot.shape
        if slot.called.kernel.last_first:
            return found.view(-1, *shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        return found.view(-1, *shape)


def _kept_in(called: Called, given: torch.dtype) -> torch.dtype:
    """What a state is kept in: as vLLM is told by ``mamba_ssm_cache_dtype``, else in float32 where sums grow in it."""
    told = get_current_vllm_config().cache_config.mamba_ssm_cache_dtype
    narrow = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(told)
    return narrow if narrow is not None and called.kernel.exact_state else called.dtype(given)


def states_of(path: str, site: Site) -> States:
    """The holder of the decoder layer that ``path`` lies in, made on first use."""
    prefix = cache_name(site.prefix(f"{_layer(path)}.states"))
    if prefix not in site.states:
        site.states[prefix] = States(prefix)
    found: States = site.states[prefix]
    return found


def _layer(path: str) -> str:
    """The decoder layer that ``path`` lies in: up to its first number; ``path`` where it has none."""
    pieces = path.split(".")
    numbers = [at for at, piece in enumerate(pieces) if piece.isdigit()]
    return ".".join(pieces[: numbers[0] + 1]) if numbers else path


@dataclass(frozen=True)
class Piece:
    """``tokens`` tokens of one sequence from row ``start`` on; ``goes_on`` unless its first token is among them."""

    start: int
    tokens: int
    page: int
    goes_on: bool

    @property
    def span(self) -> tuple[int, int]:
        """Start and length."""
        return self.start, self.tokens


@dataclass(frozen=True)
class Scheduled:
    """The tokens of a step: first single tokens of sequences that go on, then pieces.

    Attributes:
        singles: how many single tokens there are.
        single_pages: their pages, ``[singles]``.
        pieces: what follows them.
        side: the same for kernels that take all pieces at once.
    """

    singles: int
    single_pages: torch.Tensor
    pieces: tuple[Piece, ...]
    side: Side | None = None

    @property
    def rows(self) -> int:
        """How many rows there are; what follows them belongs to nobody."""
        return sum(self.span) if self.pieces else self.singles

    @property
    def span(self) -> tuple[int, int]:
        """First row of the pieces, and how many rows they are."""
        first, last = self.pieces[0], self.pieces[-1]
        return first.start, last.start + last.tokens - first.start


def scheduled(layer: str) -> tuple[Any, Scheduled | None]:
    """The layer of that name, and what is scheduled for it; nothing while vLLM measures memory."""
    context = get_forward_context()
    metadata = context.attn_metadata
    found = metadata.get(layer) if isinstance(metadata, dict) else None
    return context.no_compile_layers[layer], None if found is None else _read(found)


def _read(metadata: Any) -> Scheduled:
    """The metadata in our words; remembered on it, since every layer of a group asks for the same."""
    known: Scheduled | None = getattr(metadata, "hfspeed", None)
    if known is not None:
        return known
    pieces: list[Piece] = []
    if metadata.num_prefills:
        starts = metadata.query_start_loc_p.tolist()
        pages = metadata.state_indices_tensor_p.tolist()
        goes_on = metadata.has_initial_states_p.tolist()
        for number in range(metadata.num_prefills):
            tokens = starts[number + 1] - starts[number]
            start = metadata.num_decode_tokens + starts[number]
            pieces.append(Piece(start, tokens, pages[number], goes_on[number]))
    singles = metadata.num_decodes
    pages_of_singles = metadata.state_indices_tensor_d[:singles, 0].long()
    pieces = [piece for piece in pieces if piece.tokens]
    metadata.hfspeed = Scheduled(singles, pages_of_singles, tuple(pieces), _side(pieces) if pieces else None)
    found: Scheduled = metadata.hfspeed
    return found


def _side(pieces: Sequence[Piece]) -> Side:
    """Pieces follow one another, and so does what they are given."""
    starts = [piece.start - pieces[0].start for piece in pieces] + [
        pieces[-1].start + pieces[-1].tokens - pieces[0].start
    ]
    pages = torch.tensor([piece.page for piece in pieces], dtype=torch.int32)
    return Side(torch.tensor(starts, dtype=torch.int32), pages, torch.tensor([piece.goes_on for piece in pieces]))
