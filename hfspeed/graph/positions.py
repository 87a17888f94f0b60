"""From a running frame to the exact expression of the author's forward that is being evaluated."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

import torch
from torch import nn

from hfspeed.refusal import Place

_TORCH = str(Path(torch.__file__).parent) + os.sep


@dataclass(frozen=True)
class Span:
    """Where an expression stands: absolute lines from 1, utf-8 columns from 0, as ``ast`` counts.

    ``direct`` is false when the expression is a call of the author's helper and the recorded operation
    happened inside it.
    """

    file: str
    line: int
    end_line: int
    column: int
    end_column: int
    direct: bool


@lru_cache(maxsize=4096)
def forward_code(cls: type[nn.Module]) -> CodeType | None:
    """The code object of a class's own ``forward`` with decorators looked through."""
    function = inspect.unwrap(cls.forward)
    return getattr(function, "__code__", None)


@lru_cache(maxsize=4096)
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


Stack = tuple[tuple[CodeType, int], ...]
"""The author's functions that were running at an operation, innermost first, and how far each had come."""


def stack_of(frame: FrameType | None, boundary: FrameType) -> Stack:
    """The frames from ``frame`` to the module's own, without torch's and ours."""
    found = []
    while frame is not None and frame is not boundary:
        if not frame.f_code.co_filename.startswith((_TORCH, __file__, _HERE)):
            found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def place_in(stack: Stack) -> Place | None:
    """The line at which the innermost of the author's functions was; ``None`` where it has none."""
    for code, last in stack[:1]:
        line = _positions(code)[last // 2][0]
        return Place(code.co_filename, line) if line else None
    return None


def package_of(frame: FrameType) -> str:
    """The outermost package that the code of ``frame`` belongs to."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def author_of(frame: FrameType | None) -> FrameType | None:
    """The innermost frame outwards from ``frame`` that is not torch's; none if it is of this package."""
    while frame is not None and package_of(frame) == "torch":
        frame = frame.f_back
    return None if frame is None or package_of(frame) == "hfspeed" else frame


def place_at(frame: FrameType) -> Place:
    """The line at which ``frame`` is."""
    return Place(frame.f_code.co_filename, frame.f_lineno)


def span_at(code: CodeType, last: int, *, direct: bool) -> Span | None:
    """The expression that ``code`` was evaluating."""
    line, end_line, column, end_column = _positions(code)[last // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Span(code.co_filename, line, end_line, column, end_column, direct)


def span_in(frame: FrameType | None, code: CodeType | None, boundary: FrameType) -> Span | None:
    """The expression of ``code`` that led to ``frame``; ``None`` if ``code`` is not on the stack.

    ``boundary`` is the frame that called the module: the search never leaves the module's own frames.
    """
    direct = True
    while frame is not None and frame is not boundary:
        if frame.f_code is code:
            return span_at(frame.f_code, frame.f_lasti, direct=direct)
        if not frame.f_code.co_filename.startswith((_TORCH, __file__, _HERE)):
            direct = False
        frame = frame.f_back
    return None


_HERE = str(Path(__file__).parent) + os.sep
