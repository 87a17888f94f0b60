"""A model planned as it is, else with attention left to its author, by hand or behind the interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from hfspeed.errors import HfspeedError, RefusedError
from hfspeed.planner.attends import only_by_hand, slower
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.load import Subject
from hfspeed.planner.written import writings
from hfspeed.refusal import Refusal

T = TypeVar("T")


def tried(subject: Subject, attempt: Callable[..., T]) -> tuple[T, tuple[Refusal, ...]]:
    """What the first attempt gives that is not refused, and what had to be said of those before it.

    Args:
        subject: what is planned.
        attempt: takes ``as_written``, or a ``writing``, by keyword.

    Raises:
        RefusedError: of the first attempt, if the others are refused too.
    """
    try:
        return attempt(), ()
    except RefusedError as no:
        for how in _others(subject, no):
            with suppress(HfspeedError, *AUTHOR_ERRORS):
                return attempt(**how), tuple(slower(no))
        raise


def _others(subject: Subject, no: RefusedError) -> Iterator[dict[str, Any]]:
    if only_by_hand(no):
        yield {"as_written": True}
    yield from ({"writing": writing} for writing in writings(subject, no))
