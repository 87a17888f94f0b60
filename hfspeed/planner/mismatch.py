"""What a failed proof says, and the conditions under which proofs are run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from hfspeed.errors import HfspeedError, PlanError
from hfspeed.graph.exact import Exact
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.planner.witness import Witness
from hfspeed.refusal import Reason, Refusal, Refused

BOUNDS = {torch.float64: 1e-8, torch.float32: 5e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""The relative error that refuses a proof. In float64 rounding stays a million times below it."""


class Mismatch(HfspeedError):  # noqa: N818  it is what was found, not what failed
    """The plan computes something else than its author, or cannot run.

    Attributes:
        refusal: the same as data; ``module`` is the first that differs, in the order of execution.
        error: how far it is off there, relative to the largest magnitude; ``inf`` when it cannot run.
        how: what was run, e.g. ``"2 ranks, 1 stage, packed"``.
    """

    def __init__(self, refusal: Refusal, error: float, how: str) -> None:
        self.refusal, self.error, self.how = refusal, error, how
        where = f" at {refusal.module}" if refusal.module else ""
        super().__init__(f"with {how}{where}: {refusal.found} ({refusal.reason})")

    @property
    def module(self) -> str:
        """The first module that differs, or where it stopped."""
        return self.refusal.module


def arithmetic(dtype: torch.dtype) -> AbstractContextManager[Any]:
    """How to compute in ``dtype``: float64 throughout, or as the author's code asks."""
    return Exact() if dtype is torch.float64 else nullcontext()


@contextmanager
def running(how: str, witness: Witness) -> Iterator[None]:
    """Turn what the run raises into a `Mismatch` that names the innermost module of ``witness``."""
    try:
        yield
    except Refused as error:
        raise Mismatch(error.refusal, math.inf, how) from error
    except (*AUTHOR_ERRORS, PlanError) as error:
        path = witness.inside[-1] if witness.inside else ""
        named = f" in {witness.classes[path]}" if path in witness.classes else ""
        raise Mismatch(Refusal("proof", Reason.CANNOT_RUN, told(error) + named, path), math.inf, how) from error


def apart(theirs: Witness, inner: list[tuple[str, float]], final: dict[str, float], bound: float, how: str) -> Mismatch:
    """The mismatch at the first of ``inner`` that breaks ``bound``, else at the worst of ``final``."""
    off = [(path, error) for path, error in inner if not error <= bound]
    path, error = off[0] if off else max(final.items(), key=lambda item: item[1], default=("", math.inf))
    named = f" ({theirs.classes[path]})" if path in theirs.classes else ""
    end = ", ".join(f"{name} by {value:.1e}" for name, value in final.items()) or "nothing comparable came out"
    found = f"off by {error:.1e}{named}, allowed {bound:.0e}; in the end {end}"
    return Mismatch(Refusal("proof", Reason.NUMBERS_DIFFER, found, path), error, how)


def many(count: int, name: str) -> str:
    """``1 rank``, ``2 ranks``."""
    return f"{count} {name}{'' if count == 1 else 's'}"
