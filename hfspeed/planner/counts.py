"""Numbers made of how many tokens a row has: each knows what it would be in other rows, and what it is asked."""

from __future__ import annotations

import copy
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hfspeed.graph.positions import author_of, place_at
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS
from hfspeed.refusal import Place

MOST: Final = 1 << 14
"""Rows of up to so many tokens are thought of; longer ones are run on meta by other proofs."""
USUAL: Final = (61, TOKENS)
"""Tokens of the run in which branches are found: a number that no size of a model is made of, if it may be so long."""
NEARBY: Final = 2
"""A size that is so near to the number of tokens is made of it, as without a first or with one more token."""


@dataclass(frozen=True)
class Branch:
    """A question asked of a count.

    Attributes:
        place: the line that asked.
        answers: one for each number of tokens from 1 on; the first is true.
    """

    place: Place
    answers: torch.Tensor


@dataclass
class Asked:
    """What was asked in one run.

    Attributes:
        tokens: how many there are.
        branches: questions whose answer is not always the same, by a number for all of their answers.
        entries: numbers in code that looks something up by a count, for which nothing is asked, and where.
    """

    tokens: int
    branches: dict[int, Branch] = field(default_factory=dict)
    entries: dict[int, Place] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.every = torch.arange(1, MOST + 1)
        self._weights = torch.randint(1 << 40, (MOST,), generator=torch.Generator().manual_seed(0))

    def count(self, size: int) -> int:
        """``size``, as a count if it is made of the number of tokens."""
        if size and size % self.tokens == 0:
            return Count(size, self.every * (size // self.tokens), self)
        if abs(size - self.tokens) <= NEARBY:
            return Count(size, self.every + (size - self.tokens), self)
        return size

    def kinds(self) -> torch.Tensor:
        """A number for each number of tokens from 1 on, the same where every question is answered alike."""
        if not self.branches:
            return torch.zeros(len(self.every), dtype=torch.int64)
        answers = torch.stack([one.answers for one in self.branches.values()], 1)
        return torch.unique(answers, dim=0, return_inverse=True)[1]

    def note(self, answers: torch.Tensor) -> None:
        """One way or another is taken by a count."""
        answers = answers if answers[0] else ~answers
        frame = None if answers.all() else author_of(sys._getframe(2))
        if frame is not None:
            self.branches.setdefault(int((answers * self._weights).sum()), Branch(place_at(frame), answers))

    def looked_up(self) -> None:
        """Something is looked up by a count."""
        if (frame := author_of(sys._getframe(2))) is not None:
            self.entries |= dict.fromkeys(_whole_numbers(frame.f_code), place_at(frame))


class Counting(TorchFunctionMode):
    """While it is on, sizes of tensors that are made of the number of tokens are counts."""

    def __init__(self, asked: Asked) -> None:
        super().__init__()
        self.asked = asked

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func not in _SIZES:
            return out
        with torch._C.DisableTorchFunction():
            if isinstance(out, torch.Size):
                return torch.Size([self.asked.count(size) for size in out])
            return self.asked.count(out) if type(out) is int else out


_SIZES = {torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.numel}  # type: ignore[attr-defined]


class _Made:
    """A number with what it would be for every number of tokens."""

    along: torch.Tensor
    asked: Asked

    def __bool__(self) -> bool:
        with torch._C.DisableTorchFunction():
            self.asked.note(self.along != 0)
        return bool(_plain(self))

    def __hash__(self) -> int:
        self.asked.looked_up()
        return hash(_plain(self))


class Count(_Made, int):
    """A whole number made of the number of tokens."""

    def __new__(cls, value: int, along: torch.Tensor, asked: Asked) -> Self:
        """The number in this row, and in every other."""
        made = int.__new__(cls, value)
        made.along, made.asked = along, asked
        return made


class Share(_Made, float):
    """A fraction made of the number of tokens."""

    def __new__(cls, value: float, along: torch.Tensor, asked: Asked) -> Self:
        """The number in this row, and in every other."""
        made = float.__new__(cls, value)
        made.along, made.asked = along, asked
        return made


def asked_of(model: nn.Module) -> Asked | None:
    """What a model asks of a row; ``None`` if it does not run."""
    for tokens in USUAL:
        asked = Asked(tokens)
        try:
            with torch.no_grad(), Counting(asked):
                copy.deepcopy(model)(**prompt(model, tokens))
        except AUTHOR_ERRORS:
            continue
        return asked
    return None


def _plain(value: Any) -> Any:
    """Without what it would be elsewhere."""
    if isinstance(value, _Made):
        return int.__int__(value) if isinstance(value, int) else float.__float__(value)  # type: ignore[arg-type]
    return value


def _along(value: Any) -> Any:
    return value.along if isinstance(value, _Made) else value


def _reckoned(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    """A method that computes as numbers do, and the same for every other row."""
    how: Callable[..., Any] = getattr(operator, name)

    def method(self: _Made, *others: Any) -> Any:
        if any(not isinstance(one, int | float) for one in others):
            return NotImplemented
        order = (*others, self) if swapped else (self, *others)
        found = how(*map(_plain, order))
        with torch._C.DisableTorchFunction():
            try:
                along = how(*map(_along, order))
            except (RuntimeError, TypeError, OverflowError):
                return found  # a number that torch has no such operation for is known for this row only
            if isinstance(found, bool):
                self.asked.note(along)
                return found
        if isinstance(found, int):
            return Count(found, along, self.asked)
        return Share(found, along, self.asked) if isinstance(found, float) else found

    return method


def _methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow", "and_", "or_", "xor", "lshift", "rshift"):
        yield f"__{name.strip('_')}__", _reckoned(name)
        yield f"__r{name.strip('_')}__", _reckoned(name, swapped=True)
    for name in ("neg", "pos", "abs", "eq", "ne", "lt", "le", "gt", "ge"):
        yield f"__{name}__", _reckoned(name)


for _name, _method in _methods():
    setattr(_Made, _name, _method)


def _whole_numbers(code: CodeType) -> Iterator[int]:
    """Numbers written in a function, on their own or in sets and tuples."""
    for value in code.co_consts:
        for one in value if isinstance(value, frozenset | tuple) else (value,):
            if type(one) is int and 0 < one <= MOST:
                yield one
