"""A refusal: what was wanted, what was found instead, where, and how near it came."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from types import CodeType


class Reason(StrEnum):
    """Why something cannot apply. A lint rule lends words to a reason, so linter and planner agree."""

    # recovering source
    NO_SOURCE = "no-source"
    CLOSURE = "closure"
    UNSUPPORTED_SYNTAX = "unsupported-syntax"
    # stacking projections
    INPUTS_DIFFER = "inputs-differ"
    INPUT_WRITTEN = "input-written"
    WIDTHS_DIFFER = "widths-differ"
    BIAS_DIFFERS = "bias-differs"
    CALLED_THROUGH_HELPER = "called-through-helper"
    CALLED_TWICE = "called-twice"
    NOT_A_PLAIN_CALL = "not-a-plain-call"
    DIFFERENT_BLOCKS = "different-blocks"
    USED_ELSEWHERE = "used-elsewhere"
    NOT_HEADS = "not-heads"
    NO_GATED_KERNEL = "no-gated-kernel"
    # norms
    NOT_A_NORM = "not-a-norm"
    # attention
    NO_INTERFACE = "no-interface"
    CALLED_TWICE_INTERFACE = "interface-called-twice"
    KEYWORD_NOT_CONSUMED = "keyword-not-consumed"
    MASK_NOT_CAUSAL = "mask-not-causal"
    VALUE_VARIES = "value-varies"
    # experts
    EXPERTS_AS_WRITTEN = "experts-as-written"
    # axes
    MIXES_SPLIT = "mixes-split"
    DOES_NOT_DIVIDE = "does-not-divide"
    NOT_SPLIT = "not-split"
    PLAN_DISAGREES = "plan-disagrees"
    NO_DECODER_LAYERS = "no-decoder-layers"
    STAGE_STATE = "stage-state"
    # recurrences
    NO_KERNEL = "no-kernel"
    # the whole model
    WRAPPER_NOT_ROWWISE = "wrapper-not-rowwise"
    POSITIONS_NOT_READ = "positions-not-read"
    NUMBERS_DIFFER = "numbers-differ"
    CANNOT_RUN = "cannot-run"
    # hints
    FALSE_HINT = "false-hint"


@dataclass(frozen=True)
class Place:
    """A place in the author's file. Lines and columns count from 1."""

    file: str
    line: int
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None

    @classmethod
    def of(cls, code: CodeType | None) -> Place | None:
        """Where a function begins; ``None`` for what has no code."""
        return cls(code.co_filename, code.co_firstlineno) if code is not None else None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Refusal:
    """Why one thing was not done. It is data: printed by `plan`, told by the linter, never swallowed.

    Attributes:
        wanted: the fusion, axis or promise that was refused, e.g. ``"gated"``.
        reason: the machine-readable cause.
        found: one phrase, no full stop: what stands in the way, names in backticks.
        module: dotted path or class name of the module concerned.
        place: the blamed line, when there is one.
        near: how much of the pattern had matched; the nearest refusal is the one told.
        help: what the author can write instead, as a command; may be empty.
    """

    wanted: str
    reason: Reason
    found: str
    module: str = ""
    place: Place | None = None
    near: int = 0
    help: str = ""

    def at(self, module: str, place: Place | None = None) -> Refusal:
        """The same refusal, told of ``module`` (and at ``place`` if it had none)."""
        return replace(self, module=module, place=self.place or place)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        of = f" in {self.module}" if self.module else ""
        return f"{where}{self.wanted}{of}: {self.found} ({self.reason})"


class Refused(Exception):  # noqa: N818  the verb's past participle says what happened
    """Raised where a refusal is found; whoever asked turns it back into data."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        super().__init__(str(refusal))
