"""What an author's code raises while it is looked at becomes a refusal at the author's line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hfspeed.errors import RefusedError
from hfspeed.planner.import_file import AUTHOR_ERRORS, told
from hfspeed.refusal import Place, Reason, Refusal

if TYPE_CHECKING:
    from hfspeed.planner.load import Subject

_OURS = Path(__file__).resolve().parents[1]
_BETWEEN = _OURS / "graph"
"""Of ours, but it stands between an author's code and torch."""


@contextmanager
def blamed(subject: Subject) -> Iterator[None]:
    """Run the planner. What is raised in code of the model's is refused there; all else is a defect of ours.

    Raises:
        RefusedError: the author's code raised something; the innermost line of it is told.
    """
    try:
        yield
    except AUTHOR_ERRORS as error:
        place = line_of(error, subject.file.parent)
        if place is None:
            raise
        found = f"the code does not run in small and in float64: {told(error)}"
        help_ = "let sizes follow from the configuration, and dtypes from what is computed with"
        no = Refusal("model", Reason.CANNOT_RUN, found, subject.model_class.__name__, place, help=help_)
        raise RefusedError(subject.name, (no,)) from error


def unrun(error: BaseException) -> tuple[str, str]:
    """Why a forward does not run on token ids alone, and what helps."""
    text = str(error)
    if "on meta tensors" in text or "register_meta" in text or "meta device" in text:
        found = "the forward reads a value off a tensor here, or makes a shape of values, and weights decide which"
        help_ = (
            "decide by sizes or by the configuration; what must decide by values, as the choice of experts does, "
            "belongs in a module of its own that is called with hidden states"
        )
        return found, help_
    return f"the forward does not run on token ids alone: {told(error)}", ""


def line_of(error: BaseException, folder: Path) -> Place | None:
    """The innermost line of ``error`` in ``folder`` or in a model that transformers ships; ``None`` if ours is deeper.

    Libraries that the author calls do not count: what they raise is told of the author's line.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(folder) or {"transformers", "models"} <= set(file.parts):
            return Place(frame.filename, frame.lineno or 1)
        if file.is_relative_to(_OURS) and not file.is_relative_to(_BETWEEN):
            return None
    return None
