"""`@recurrence` says what a function computes; what cannot be so is an error where it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hfspeed import recurrence
from hfspeed.errors import HintError
from hfspeed.hints import read
from hfspeed.hints.recurrence import RECURRENCES
from hfspeed.recurrences import KERNELS


def test_it_stores_one_record_and_changes_nothing() -> None:
    def flow(a: Any, b: Any) -> Any:
        return a, b

    assert recurrence("convolution", x="a", weight="b")(flow) is flow
    assert flow(1, 2) == (1, 2)
    (hint,) = read(flow)
    assert hint.kind == "recurrence"
    assert dict(hint.names) == {"kind": "convolution", "returns": "alone", "x": "a", "weight": "b"}
    assert Path(hint.file) == Path(__file__)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (lambda: recurrence("tide"), "no kind of recurrence"),
        (lambda: recurrence("convolution", q="a"), "`q` is no role of convolution"),
        (lambda: recurrence("convolution", x="c")(lambda a, b: a), "names `c`, which is no argument"),
        (lambda: recurrence("convolution")(int), "marks a function, got a type"),
        (lambda: recurrence("shift")(recurrence("shift")(lambda x: x)), "said twice"),
    ],
)
def test_what_cannot_be_said(said: Any, told: str) -> None:
    with pytest.raises(HintError, match=told):
        said()


def test_it_knows_every_kernel_and_its_roles() -> None:
    """The vendored file cannot ask the kernels, so it has a list of its own."""
    known = {kernel.kind: {*kernel.roles, *kernel.usual} for kernel in KERNELS}
    assert {kind: set(roles) for kind, roles in RECURRENCES.items()} == known
