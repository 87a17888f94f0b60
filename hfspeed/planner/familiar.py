"""What is said of a model that does not run alone, or uses its weights in an odd way."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from hfspeed.errors import RefusedError
from hfspeed.graph.positions import forward_code
from hfspeed.graph.record import Recording
from hfspeed.planner.blame import line_of, unrun
from hfspeed.refusal import Place, Reason, Refusal


def familiar(recording: Recording) -> None:
    """Refuse modules that are called with other weights than their own, or under ``torch.func``.

    Raises:
        RefusedError: at the lines that do so.
    """
    help_ = "give it weights of its own, or compute with the functions of torch: kernels have the weights as loaded"
    told = {place: (path, what) for path, what, place in reversed(recording.strange)}
    odd = [Refusal("model", Reason.CANNOT_RUN, what, path, at, help=help_) for at, (path, what) in told.items()]
    if odd:
        raise RefusedError(type(recording.model).__name__, tuple(odd))


def cannot_run(model_class: type[Any], error: BaseException) -> Refusal:
    """A refusal at the author's line that raised ``error``."""
    start = Place.of(forward_code(model_class))  # type: ignore[arg-type]
    place = line_of(error, Path(inspect.getfile(model_class)).parent) or start
    found, help_ = unrun(error)
    return Refusal("model", Reason.CANNOT_RUN, found, model_class.__name__, place, help=help_)
