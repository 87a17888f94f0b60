"""A call of a stateful function as its plan knows it: arguments sorted, settings held against the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hfspeed.plan import Recurrence
from hfspeed.plan.settings import read
from hfspeed.recurrences.kernel import Kernel, Unsupported
from hfspeed.refusal import Reason, Refusal, Refused


@dataclass(frozen=True, eq=False)
class At:
    """A tensor among the arguments of a call, by its number."""

    number: int


PLACES = tuple(At(number) for number in range(64))
FORMS = 16
"""How many ways to call a function are remembered; more than a few have values that vary and say nothing."""


def _mark(at: At, value: Any) -> Any:
    """What an argument is to the sorting: its place if it is a tensor, else itself."""
    if isinstance(value, torch.Tensor):
        return at
    return tuple(value) if isinstance(value, list) else value


class Called:
    """What every builder puts behind the name that a `Recurrence` promises.

    Attributes:
        op: the plan's.
        kernel: what it computes.
        settings: the plain values it is computed with, defaults included.
    """

    def __init__(self, op: Recurrence, kernel: Kernel) -> None:
        self.op, self.kernel = op, kernel
        self.settings = dict(kernel.usual) | dict(read(entry) for entry in op.settings)
        self.known: dict[Any, dict[str, Any]] = {}

    def operands(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, torch.Tensor | None]:
        """The call's tensors by role.

        Raises:
            Refused: an argument asks for something that the plan does not say.
        """
        values = *args, *keywords.values()
        if torch.compiler.is_compiling() or len(values) > len(PLACES):
            return self._sorted(args, keywords)
        marks = tuple(map(_mark, PLACES, values))
        form = len(args), tuple(keywords), marks
        try:
            found = self.known.get(form)
        except TypeError:  # something without a hash stands among them
            return self._sorted(args, keywords)
        if found is None:
            named = dict(zip(keywords, marks[len(args) :], strict=True))
            found = self._sorted(marks[: len(args)], named)
            if len(self.known) < FORMS:
                self.known[form] = found
        return {role: values[at.number] if isinstance(at, At) else at for role, at in found.items()}

    def _sorted(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self.kernel.bind(self.op.parameters, args, keywords)
        except Unsupported as no:
            raise Refused(self._told(str(no))) from no
        for name, planned in self.settings.items():
            if bound.settings[name] != planned:
                raise Refused(self._told(f"`{name}` is {bound.settings[name]!r}, but the plan says {planned!r}"))
        if bound.pair != self.op.pair:
            raise Refused(self._told("its final state is asked for now, and was not when it was planned"))
        return bound.operands

    def dtype(self, given: torch.dtype) -> torch.dtype:
        """What the state is kept in."""
        return torch.promote_types(given, torch.float32) if self.kernel.exact_state else given

    def result(self, out: torch.Tensor) -> Any:
        """What the author's function returns; ``out`` lies in memory as there, since some code views it."""
        return (out, None) if self.op.pair else out

    def _told(self, found: str) -> Refusal:
        help_ = "give it one value that does not vary at run time"
        return Refusal("recurrence", Reason.KEYWORD_NOT_CONSUMED, found, self.op.path, help=help_)


class Turn:
    """Which of its calls in a step a module is at; a step makes them all, in one order."""

    def __init__(self, calls: int) -> None:
        self.calls, self.at = calls, 0

    def next(self) -> int:
        """The number of this call."""
        number = self.at
        self.at = (number + 1) % self.calls
        return number
