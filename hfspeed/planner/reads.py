"""Plain values that a forward reads off positions and token ids must not decide what it computes."""

from __future__ import annotations

import re
from collections.abc import Callable

from torch import fx, nn

from hfspeed.errors import RefusedError
from hfspeed.graph.nodes import function_name
from hfspeed.graph.positions import forward_code, place_in
from hfspeed.graph.record import Recording
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.refusal import Place, Reason, Refusal

TOKENS = 9
"""Length of the prompts that are recorded here."""
SHORT = 64
"""A model that decides by position before this one is of no use below it."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def steady(model: nn.Module, early: Recording, run: Callable[[int], Recording], longest: int) -> int:
    """The longest sequence for which a forward computes what it computes for short ones; 0 if it always does.

    Several sequences run side by side, so a decision by the longest would be taken for all of them at once. Where
    none may be so long, it is never taken.

    Args:
        model: what was recorded.
        early: a prompt whose positions begin at 0.
        run: records one whose positions begin at another number.
        longest: the last number to try.

    Raises:
        RefusedError: even short sequences are computed in different ways.
    """
    late, usual = run(longest), _text(early)
    if early.reads == late.reads or usual == _text(late):
        return 0
    same, other = 0, longest
    while other - same > 1:
        middle = (same + other) // 2
        same, other = (middle, other) if _text(run(middle)) == usual else (same, middle)
    if same >= SHORT:
        return same + TOKENS
    pairs = zip(early.reads, late.reads, strict=False)
    at = next((number for number, (one, other) in enumerate(pairs) if one != other), 0)
    found = "the forward reads positions and behaves otherwise for long sequences"
    raise _refused(model, early, at, found, "make it a function of each token's own position")


def blind(model: nn.Module, first: Recording, run: Callable[[bool], Recording]) -> None:
    """Refuse a forward that computes otherwise because some token is among those that it was given.

    ``run`` records it with token ids that have no values, and one answer to every question about them. A forward
    that only warns computes the same whatever the answer is.
    """
    found = "the forward asks which tokens it was given, and computes otherwise for some"
    help_ = "let each token decide for itself, as with torch.where; several sequences share a row"
    try:
        no, yes = run(False), run(True)
    except AUTHOR_ERRORS as error:
        raise _refused(model, first, -1, found, help_) from error
    if _text(no) != _text(yes):
        at = next((n for n, one in enumerate(yes.reads) if one not in first.reads), 0)
        raise _refused(model, yes, at, found, help_)


def _text(recording: Recording) -> dict[str, list[str]]:
    """Every operation of a run with its arguments, by module."""
    every = {path: [call, *recording.again.get(path, ())] for path, call in recording.calls.items()}
    return {path: [_ADDRESS.sub("", _lines(call.graph)) for call in calls] for path, calls in every.items()}


def _lines(graph: fx.Graph) -> str:
    """A line for each node; torch's own text of a graph knows no attributes of tensors, such as `mT`."""
    return "\n".join(f"{one} = {one.op} {_target(one)} {one.args} {one.kwargs}" for one in graph.nodes)


def _target(node: fx.Node) -> str:
    attribute = getattr(getattr(node.target, "__self__", None), "__name__", "")
    return f"{attribute}.{function_name(node)}" if function_name(node) else str(node.target)


def _refused(model: nn.Module, recording: Recording, at: int, found: str, help_: str) -> RefusedError:
    path = recording.reads[at][0]
    place = place_in(recording.read_at[at])
    if place is None and (code := forward_code(type(model.get_submodule(path)))):  # type: ignore[arg-type]
        place = Place(code.co_filename, code.co_firstlineno)
    refusal = Refusal("model", Reason.VALUE_VARIES, found, path, place, help=help_)
    return RefusedError(type(model).__name__, (refusal,))
