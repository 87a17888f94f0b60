"""Simulated ranks: threads of one process that meet in collectives, so that a split model runs without devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch

T = TypeVar("T")


class Group(Protocol):
    """What a split layer needs of the other ranks."""

    rank: int
    size: int

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in rank order."""

    def all_gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's value, in rank order."""

    def all_to_all(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Give piece ``n`` to rank ``n``; what each rank gave to this one, in rank order. Sizes may differ."""

    def barrier(self) -> None:
        """Return once every rank has called it."""


class Alone:
    """The group of one rank."""

    rank, size = 0, 1

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """The value itself."""
        return value

    def all_gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        """The value itself."""
        return [value]

    def all_to_all(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The one piece."""
        return list(pieces)

    def barrier(self) -> None:
        """Nobody to wait for."""


class RanksError(RuntimeError):
    """The ranks do not call the same collectives in the same order: some layer is split on one rank only."""


class Ranks:
    """``Ranks(n).run(fn)`` calls ``fn(rank, group)`` on n threads and returns the results in rank order."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"{size} ranks, expected at least one")
        self.size = size

    def run(self, fn: Callable[[int, Group], T]) -> list[T]:
        """Run ``fn`` on every rank.

        Raises:
            BaseException: the first error in time that a rank raised; the other ranks are released.
            RanksError: a rank returned, or called another collective, while others wait for it.
        """
        if self.size == 1:
            return [fn(0, Alone())]
        meeting = _Meeting(self.size)
        grad = torch.is_grad_enabled()

        def work(rank: int) -> T:
            finished = False
            try:
                # Grad mode belongs to a thread, so the caller's does not reach it by itself.
                with torch.set_grad_enabled(grad):
                    result = fn(rank, _Member(rank, self.size, meeting))
                finished = True
                return result
            finally:
                meeting.leave(rank, finished=finished)

        with ThreadPoolExecutor(self.size, thread_name_prefix="rank") as pool:
            futures = [pool.submit(work, rank) for rank in range(self.size)]
        if meeting.failed is not None:
            futures[meeting.failed].result()
        if meeting.disagreement:
            raise RanksError(meeting.disagreement)
        return [future.result() for future in futures]


class _Released(BaseException):
    """Ends a rank that waits for one that failed."""


class _Meeting:
    """Where the ranks of one run wait for each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.failed: int | None = None
        self.disagreement = ""
        self._turn = threading.Condition()
        self._given: dict[int, tuple[str, Any]] = {}
        self._taken: list[tuple[str, Any]] = []
        self._round = 0
        self._gone: set[int] = set()

    def exchange(self, rank: int, what: str, value: Any) -> list[Any]:
        """Give ``value``, wait for everybody's, and take all of them."""
        with self._turn:
            if self._over():
                raise _Released
            mine = self._round
            self._given[rank] = (what, value)
            if self._gone:
                self._stop(f"rank {min(self._gone)} has returned, but rank {rank} waits for it in {what}")
            elif len(self._given) == self.size:
                self._taken = [self._given[other] for other in range(self.size)]
                self._given = {}
                self._round += 1
                if len({told for told, _ in self._taken}) > 1:
                    told = ", ".join(f"rank {other}: {told}" for other, (told, _) in enumerate(self._taken))
                    self._stop(f"the ranks disagree about what to exchange ({told})")
                self._turn.notify_all()
            while not self._over() and self._round == mine:
                self._turn.wait()
            if self._over():
                raise _Released
            # Nobody can begin the next round before everybody has taken, since that needs all the ranks.
            return [value for _, value in self._taken]

    def _over(self) -> bool:
        return self.failed is not None or bool(self.disagreement)

    def leave(self, rank: int, *, finished: bool) -> None:
        """A rank is done or has failed; nobody may wait for it any more. The first to fail is remembered."""
        with self._turn:
            self._gone.add(rank)
            self._turn.notify_all()
            if self._over():
                return
            if not finished:
                self.failed = rank
            elif self._given:
                waiting, (what, _) = min(self._given.items())
                self._stop(f"rank {rank} has returned, but rank {waiting} waits for it in {what}")

    def _stop(self, why: str) -> None:
        self.disagreement = self.disagreement or why
        self._turn.notify_all()


class _Member:
    """One rank's side of a meeting."""

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting

    def all_reduce(self, value: torch.Tensor) -> torch.Tensor:
        """The sum over all ranks, in rank order, so that every rank gets the same bits."""
        values = self._exchange("all_reduce", value)
        total = values[0]
        for other in values[1:]:
            total = total + other
        return total

    def all_gather(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's value, in rank order."""
        return self._exchange("all_gather", value)

    def all_to_all(self, pieces: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What each rank has for this one, in rank order."""
        given = self._meeting.exchange(self.rank, "all_to_all", list(pieces))
        return [one[self.rank] for one in given]

    def barrier(self) -> None:
        """Return once every rank has called it."""
        self._meeting.exchange(self.rank, "barrier", None)

    def _exchange(self, what: str, value: torch.Tensor) -> list[torch.Tensor]:
        got = self._meeting.exchange(self.rank, f"{what} of {tuple(value.shape)}", value)
        return [other for other in got if other is not None]
