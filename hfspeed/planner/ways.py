"""Whether a large model's code does only what the small one, which carries the proof, did as well."""

from __future__ import annotations

import sys
from typing import Any

from torch import fx, nn

from hfspeed.graph.nodes import function_name, module_of
from hfspeed.graph.positions import forward_code, place_in
from hfspeed.graph.record import Recording
from hfspeed.pattern.replacement import place_of
from hfspeed.refusal import Place, Reason, Refusal

LAYOUT = {"contiguous", "float"}
"""Operations that change no value, and that a small model in float64 need not be seen to run."""
Step = tuple[str, int, int]
"""An operation, and the instruction that ran it: the same operation elsewhere in a forward is another step."""


def other_ways(full: Recording, small: Recording, *, layers: bool = True) -> tuple[Refusal, ...]:
    """One refusal for each class that at full size takes a step which the small model never took.

    A branch may depend on a size; then what was proven is not what would be served. Where ``full`` may have more
    ``layers``, a forward that loops over modules may do the same elsewhere, so of it only operations are compared.
    """
    known = _steps(small)
    found: dict[Any, Refusal] = {}
    for path, call in full.calls.items():
        own = known.get(kind(call.cls), set())
        loops = layers and any(isinstance(one, nn.ModuleList) for one in call.module.children())
        words = {word for word, *_ in own} if loops else set()
        missing = [n for n in call.graph.nodes if _step(n) not in own and not _idle(n, LAYOUT | words)]
        if missing and kind(call.cls) not in found:
            told = ", ".join(f"`{word}`" for word in sorted({_word(node) for node in missing})[:4])
            text = f"at full size `{call.cls.__name__}` runs {told}, which no small model that was proven runs"
            help_ = "let no branch depend on a size"
            place = next((at for node in missing if (at := line(node))), None) or place_of(call)
            found[kind(call.cls)] = Refusal("proof", Reason.CANNOT_RUN, text, path, place, help=help_)
    return tuple(found.values())


def other_turns(full: Recording, small: Recording) -> bool:
    """Whether a loop over layers does something between two of them that it does between no two of the small model."""
    known = _turns(small)
    return any(not turns <= known.get(where, set()) for where, turns in _turns(full).items())


def _turns(recording: Recording) -> dict[Any, set[tuple[str, ...]]]:
    """By class: the operations between one call of a list's members and the next, for all that were seen."""
    found: dict[Any, set[tuple[str, ...]]] = {}
    lists = {name for name, one in recording.model.named_modules() if isinstance(one, nn.ModuleList)}
    for call in recording.calls.values():
        turn: list[str] | None = None
        for node in call.graph.nodes:
            if node.op == "call_module" and str(node.target).rpartition(".")[0] in lists:
                if turn is not None:
                    found.setdefault(kind(call.cls), set()).add(tuple(turn))
                turn = []
            elif turn is not None and node.op.startswith("call_") and not _idle(node, LAYOUT | {"to"}):
                turn.append(_word(node))
    return found


def _idle(node: fx.Node, words: set[str]) -> bool:
    """Whether it need not be seen elsewhere: it is one of ``words``, or a cast to what its value is already."""
    if function_name(node) == "to" and node.all_input_nodes:
        one, other = (getattr(n.meta.get("value"), "dtype", None) for n in (node, node.all_input_nodes[0]))
        return one is other is not None or "to" in words
    return _word(node) in words


def kind(cls: type) -> Any:
    """What is the same of a class in every model: itself, or of one that is made anew for each, what it is made of.

    torch gives every module with a parametrised weight a class of its own.
    """
    if getattr(sys.modules.get(cls.__module__), cls.__name__, None) is cls or not issubclass(cls, nn.Module):
        return cls
    return (cls.__name__, forward_code(cls), *map(kind, cls.__bases__))  # type: ignore[arg-type]


def _steps(recording: Recording) -> dict[Any, set[Step]]:
    found: dict[Any, set[Step]] = {}
    every = [*recording.calls.values(), *(call for calls in recording.again.values() for call in calls)]
    for call in every:
        found.setdefault(kind(call.cls), set()).update(_step(node) for node in call.graph.nodes)
    return found


def _step(node: fx.Node) -> Step:
    stack = node.meta.get("stack") or ()
    return (_word(node), id(stack[0][0]), stack[0][1]) if stack else (_word(node), 0, 0)


def _word(node: fx.Node) -> str:
    """A function's name, or the class of the child called; arguments and parameters are no operations."""
    if (module := module_of(node)) is not None:
        return type(module).__name__
    return function_name(node) or "value"


def line(node: fx.Node) -> Place | None:
    """The innermost line of the author's that ran the node."""
    return place_in(node.meta.get("stack") or ())
