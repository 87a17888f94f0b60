"""What was decided for a layer that ran holds for every layer that was proven equal to it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from hfspeed.plan import Forward, Local, Op
from hfspeed.plan.paths import outer
from hfspeed.planner.leaves import Splits
from hfspeed.planner.study import Study
from hfspeed.refusal import Refusal

_T = TypeVar("_T")


class Alike:
    """The equal layers of a model.

    Args:
        study: the model; its recording says which layers were taken for which.
    """

    def __init__(self, study: Study) -> None:
        self.model: Any = study.model
        self._others: dict[str, list[str]] = {}
        for path, first in study.recording.like.items():
            self._others.setdefault(first, []).append(path)

    def paths(self, path: str) -> list[str]:
        """``path``, and the same place in every equal layer."""
        for above in (*outer(path), path) if self._others else ():
            if above in self._others:
                rest = path[len(above) :]
                return [path, *(other + rest for other in self._others[above])]
        return [path]

    def all(self, paths: Collection[str]) -> frozenset[str]:
        """The paths, and their like."""
        return frozenset(other for path in paths for other in self.paths(path))

    def ops(self, ops: Iterable[Op]) -> Iterator[Op]:
        """The ops, and their like; a number that ranks divide is read off each module."""
        for op in ops:
            yield op
            for path in self.paths(op.path)[1:]:
                other = replace(op, path=path)
                if isinstance(other, Local):
                    other = replace(other, whole=int(getattr(self.model.get_submodule(path), other.attribute)))
                yield other

    def splits(self, splits: Splits) -> Splits:
        """What ranks share, in all layers."""
        return Splits(
            self._keys(splits.columns),
            self.all(splits.rows),
            self._keys(splits.gathered),
            self._keys(splits.segments),
        )

    def forward(self, forward: Forward) -> Forward:
        """The modules of a class that is emitted, in the order of the layers."""
        paths = self.all(forward.paths)
        more = len(paths) > len(forward.paths)
        return replace(forward, paths=tuple(sorted(paths, key=_ordered))) if more else forward

    def refusals(self, refusals: Iterable[Refusal]) -> Iterator[Refusal]:
        """The refusals, and the same of each equal layer."""
        for one in refusals:
            yield one
            for path in self.paths(one.module)[1:]:
                yield one.at(path)

    def _keys(self, entries: Mapping[str, _T]) -> dict[str, _T]:
        return {other: value for path, value in entries.items() for other in self.paths(path)}


def _ordered(path: str) -> list[tuple[int, str]]:
    """Numbers by size, names by letters."""
    return [(int(piece), "") if piece.isdigit() else (-1, piece) for piece in path.split(".")]
