"""Several sequences side by side in one row, each continued where its cache ends."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Segment:
    """``tokens`` tokens of one sequence, of which ``cached`` earlier ones are known already."""

    sequence: int
    tokens: int
    cached: int


class Packing:
    """What the one row holds at the moment; shared by all attention layers of a built model.

    Without segments (the state it starts in) every row of a batch is one sequence of its own, from its first token on.
    """

    def __init__(self) -> None:
        self.segments: tuple[Segment, ...] = ()
        self._cached: dict[int, int] = {}
        self._states: dict[tuple[str, int], torch.Tensor] = {}
        self._keys: dict[tuple[str, int], tuple[torch.Tensor, torch.Tensor]] = {}

    def lay(self, *pieces: tuple[int, int]) -> torch.Tensor:
        """Lay ``(sequence, tokens)`` pieces into the row; returns their positions, ``[1, tokens]``.

        What was laid before counts as cached from now on.
        """
        for done in self.segments:
            self._cached[done.sequence] = done.cached + done.tokens
        names = [name for name, _ in pieces]
        if len(set(names)) < len(names):
            raise ValueError(f"a sequence may lie in a row once, found {names}")
        self.segments = tuple(Segment(name, tokens, self._cached.get(name, 0)) for name, tokens in pieces)
        ranges = [torch.arange(one.cached, one.cached + one.tokens) for one in self.segments]
        return torch.cat(ranges)[None]

    def remember(
        self, layer: str, sequence: int, key: torch.Tensor, value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add new keys and values (``[1, kv_heads, tokens, size]``) of a layer, and return all of the sequence's."""
        if known := self._keys.get((layer, sequence)):
            key, value = torch.cat([known[0], key], 2), torch.cat([known[1], value], 2)
        self._keys[layer, sequence] = (key, value)
        return key, value

    def state(self, name: str, sequence: int) -> torch.Tensor | None:
        """The state of a sequence behind what was laid before; ``None`` before its first token."""
        return self._states.get((name, sequence))

    def keep_state(self, name: str, sequence: int, state: torch.Tensor) -> None:
        """Keep the state of a sequence for its next tokens."""
        self._states[name, sequence] = state
