"""What every module of a model returned in a run, in the order in which they finished; and how far two runs differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hfspeed.graph.tensors import tensors

Piece = tuple[int, int]
"""``(sequence, tokens)``: a stretch of one sequence in a row."""
Row = tuple[Piece, ...]


class Witness:
    """Records the first tensor that each module returned, call by call.

    Attributes:
        seen: path -> results of its calls, in order of the first.
        classes: path -> class name.
        inside: the modules that were running when an error came, outermost first.
    """

    def __init__(self) -> None:
        self.seen: dict[str, list[torch.Tensor]] = {}
        self.classes: dict[str, str] = {}
        self.inside: list[str] = []

    @contextmanager
    def watch(self, model: nn.Module) -> Iterator[None]:
        """Record the modules of ``model`` while the block runs."""
        handles = []
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(self._enters(path)))
            handles.append(module.register_forward_hook(self._leaves(path)))
            self.classes[path] = type(module).__name__
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enters(self, path: str) -> Any:
        def enter(*_: Any) -> None:
            self.inside.append(path)

        return enter

    def _leaves(self, path: str) -> Any:
        def leave(_module: nn.Module, _args: Any, output: Any) -> None:
            self.inside.pop()
            value = next(tensors(output), None)
            if value is not None:
                self.seen.setdefault(path, []).append(value)

        return leave


def by_sequence(values: Sequence[torch.Tensor], rows: Sequence[Row], dim: int = 1) -> dict[int, torch.Tensor] | None:
    """Results of rows put together again, sequence by sequence; ``None`` if they do not follow the tokens."""
    found: dict[int, list[torch.Tensor]] = {}
    if len(values) != len(rows):
        return None
    for value, row in zip(values, rows, strict=True):
        lengths = [tokens for _, tokens in row]
        if value.ndim <= dim or value.shape[dim] != sum(lengths):
            return None
        for (sequence, _), piece in zip(row, torch.split(value, lengths, dim), strict=True):
            found.setdefault(sequence, []).append(piece)
    if any(_rest(piece, dim) != _rest(pieces[0], dim) for pieces in found.values() for piece in pieces):
        return None  # another dimension hangs on how many tokens a row has
    return {sequence: torch.cat(pieces, dim) for sequence, pieces in found.items()}


def _rest(piece: torch.Tensor, dim: int) -> list[int]:
    return [size for number, size in enumerate(piece.shape) if number != dim]


def distance(author: torch.Tensor, ours: torch.Tensor, least: float = 1e-30) -> float:
    """The largest absolute difference, relative to the largest magnitude of the author's; infinite if incomparable.

    A magnitude counts as ``least`` at the least. Where both are the same infinity, as masked logits are, they agree.
    """
    if author.shape != ours.shape:
        return math.inf
    if author.numel() == 0:
        return 0.0
    if not author.is_floating_point():
        return 0.0 if torch.equal(author, ours) else math.inf
    alike = author.isinf() & (author == ours)
    author, ours = author.masked_fill(alike, 0.0), ours.masked_fill(alike, 0.0)
    error = (author - ours).abs().max().item() / max(author.abs().max().item(), least)
    return error if math.isfinite(error) else math.inf


def finite_distance(author: torch.Tensor, ours: torch.Tensor) -> float:
    """The same where both are finite: values that are louder than what code was made for are left out."""
    finite = author.isfinite() & ours.isfinite()
    return distance(author.where(finite, 0.0), ours.where(finite, 0.0))


def compare(
    author: Witness, ours: Witness, author_rows: Sequence[Row], our_rows: Sequence[Row]
) -> Iterator[tuple[str, float]]:
    """``(path, error)`` of every module that both sides have and comparable results, in the author's order."""
    for path, values in author.seen.items():
        theirs, mine = by_sequence(values, author_rows), by_sequence(ours.seen.get(path, []), our_rows)
        if theirs is None or mine is None or theirs.keys() != mine.keys():
            continue
        if any(theirs[name].shape != mine[name].shape for name in theirs):
            continue
        yield path, max(distance(theirs[name], mine[name]) for name in theirs)


def calls(author: Witness, ours: Witness) -> Iterator[tuple[str, float]]:
    """``(path, error)`` of every module called equally often with results of one shape, in the author's order."""
    for path, values in author.seen.items():
        pairs = list(zip(values, ours.seen.get(path, []), strict=False))
        if len(pairs) == len(values) and all(one.shape == other.shape for one, other in pairs):
            yield path, max(distance(one, other) for one, other in pairs)
