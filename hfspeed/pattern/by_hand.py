"""From modules that compute attention by hand to edits that make them attend through the interface."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from hfspeed.graph.record import Call, Recording
from hfspeed.pattern.attend_call import widened
from hfspeed.pattern.attend_edit import AttentionEdit, Where, edit, where
from hfspeed.pattern.canonical import canonical
from hfspeed.pattern.measure import Measured, measure
from hfspeed.pattern.reach import reach
from hfspeed.pattern.repeats import repeats
from hfspeed.pattern.scores import Written, refused, written
from hfspeed.refusal import Reason, Refusal, Refused

LONGEST: Final = 4096
"""Longest prompt whose masks are looked at; of longer ones only the numbers by which they are made."""


@dataclass
class _Found:
    """One attention: as it is computed, as its method sees it, and what running it showed."""

    inner: Written
    at: Where
    one: Written
    measured: Measured

    def replaced(self) -> AttentionEdit:
        """The change; from now on the graph has the interface's call."""
        times = repeats(self.one)
        change = edit(self.one, self.at, self.inner, grouped=times > 1)
        canonical(self.one, self.measured, times, self.at.frame)
        return change

    def look(self, long: Call, tokens: int) -> None:
        """Learn from a prompt so long that a longer one could show nothing new."""
        again = written(long, tokens)
        if again is None:
            found = "long prompts are attended to otherwise"
            raise refused(long, Reason.VALUE_VARIES, found, self.inner.softmax)
        self.measured = self.measured.within(reach(self.inner, again, tokens, self.measured))


def by_hand(call: Call, tokens: int) -> AttentionEdit | None:
    """What must change so that ``call`` attends through the interface, which its graph does from now on.

    Windows longer than ``tokens``, the length of the recorded prompt, are not seen.

    Returns:
        ``None`` if it computes no attention.

    Raises:
        Refused: what it computes is no attention that can be served, or its source cannot be changed.
    """
    found = _found(call, tokens)
    return None if found is None else found.replaced()


def _found(call: Call, tokens: int) -> _Found | None:
    inner = written(call, tokens)
    if inner is None:
        return None
    at = where(inner)
    one = inner if at.frame is None else widened(inner, at.frame, tokens)
    return _Found(inner, at, one, measure(one))


def all_by_hand(
    recording: Recording, tokens: int, again: Callable[[Collection[str], Callable[[Call], None]], None], context: int
) -> tuple[dict[str, AttentionEdit], tuple[Refusal, ...]]:
    """`by_hand` for every module that was called, windows included: edits by path, and what was refused.

    Args:
        recording: a short prompt.
        tokens: its length.
        again: records a prompt of ``context`` tokens and shows the calls of the modules at the given paths.
        context: how long prompts are that are looked at.
    """
    found: dict[str, _Found] = {}
    refusals: dict[str, Refusal] = {}
    for path, call in recording.calls.items():
        try:
            if one := _found(call, tokens):
                found[path] = one
        except Refused as no:
            refusals[path] = no.refusal

    def look(call: Call) -> None:
        try:
            found[call.path].look(call, context)
        except Refused as no:
            refusals[call.path] = no.refusal

    if paths := found.keys() - refusals.keys():
        again(paths, look)
    edits: dict[str, AttentionEdit] = {}
    for path in (path for path in found if path not in refusals):
        call, later = recording.calls[path], recording.again.get(path, ())
        same = all(_steps(one) == _steps(call) for one in later)
        try:
            edits[path] = found[path].replaced()
        except Refused as no:
            refusals[path] = no.refusal
        else:
            for other in later if same else ():
                other.graph = call.graph  # the same text runs, and so the same attention
    return edits, tuple(refusals.values())


def _steps(call: Call) -> list[tuple[str, str]]:
    return [(node.op, str(node.target)) for node in call.graph.nodes]
