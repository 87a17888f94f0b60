"""Whether a large model's code does only what the small one, which carries the proof, did as well."""

from __future__ import annotations

from torch import fx, nn

from hfspeed.graph.nodes import function_name, module_of
from hfspeed.graph.record import Recording
from hfspeed.pattern.replacement import place_of
from hfspeed.refusal import Reason, Refusal

LAYOUT = {"contiguous", "float"}
"""Operations that change no value, and that a small model in float64 need not be seen to run."""


def other_ways(full: Recording, small: Recording) -> tuple[Refusal, ...]:
    """One refusal for each class that at full size runs an operation which the small model never ran.

    A branch may depend on a size; then what was proven is not what would be served.
    """
    known = _operations(small)
    found = {}
    for path, call in full.calls.items():
        missing = {_word(node) for node in call.graph.nodes} - known.get(call.cls, set()) - LAYOUT
        if missing and call.cls not in found:
            told = ", ".join(f"`{word}`" for word in sorted(missing)[:4])
            text = f"at full size `{call.cls.__name__}` runs {told}, which no small model that was proven runs"
            help_ = "let no branch depend on a size"
            found[call.cls] = Refusal(
                "proof", Reason.CANNOT_RUN, text, path, place_of(call), help=help_
            )
    return tuple(found.values())


def _operations(recording: Recording) -> dict[type[nn.Module], set[str]]:
    found: dict[type[nn.Module], set[str]] = {}
    every = [*recording.calls.values(), *(call for calls in recording.again.values() for call in calls)]
    for call in every:
        found.setdefault(call.cls, set()).update(_word(node) for node in call.graph.nodes)
    return found


def _word(node: fx.Node) -> str:
    """A function's name, or the class of the child called; arguments and parameters are no operations."""
    if (module := module_of(node)) is not None:
        return type(module).__name__
    return function_name(node) or "value"
