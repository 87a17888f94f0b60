"""The function that carries a state from token to token, and which of its arguments is which."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import TypeVar

from hfspeed.errors import HintError
from hfspeed.hints.hint import ATTRIBUTE, Hint

F = TypeVar("F", bound=Callable[..., object])

RECURRENCES = {
    "convolution": ("x", "weight", "bias", "activation"),
    "shift": ("x",),
    "ssd": ("x", "dt", "B", "C", "A", "D", "dt_bias", "dt_softplus", "dt_limit"),
    "selective_scan": ("x", "dt", "B", "C", "z", "A", "D", "dt_bias", "dt_softplus"),
    "gated_delta": ("v", "q", "k", "g", "beta", "use_qk_l2norm_in_kernel", "scale"),
    "fine_gated_delta": ("v", "q", "k", "g", "beta", "use_qk_l2norm_in_kernel", "scale"),
    "linear_recurrence": ("x", "gate", "reset"),
    "wkv": ("v", "k", "time_decay", "time_first"),
}
"""What a function can be said to compute, and the roles of its arguments."""


def recurrence(kind: str, /, *, state: bool = False, **arguments: str) -> Callable[[F], F]:
    """Say that this function computes the recurrence ``kind``, and which argument plays which role.

    Args:
        kind: one of `RECURRENCES`.
        state: it returns a pair, of the result and of a final state or ``None``; else the result alone.
        arguments: role -> the function's own name for it. A role that an argument is named after need not be given.

    Raises:
        HintError: not above a function, no such kind or role, or no such argument.
    """
    if kind not in RECURRENCES:
        raise HintError(f"@recurrence: {kind!r} is no kind of recurrence; write one of {', '.join(RECURRENCES)}")
    for role in arguments:
        if role not in RECURRENCES[kind]:
            raise HintError(f"@recurrence: `{role}` is no role of {kind}; name one of {', '.join(RECURRENCES[kind])}")
    frame = sys._getframe(1)
    names = (("kind", kind), ("returns", "pair" if state else "alone"), *arguments.items())
    hint = Hint("recurrence", names, frame.f_code.co_filename, frame.f_lineno)

    def store(function: F) -> F:
        if isinstance(function, type) or not inspect.isfunction(function):
            raise HintError(f"@recurrence marks a function, got a {type(function).__name__}; write it above a function")
        for role, name in arguments.items():
            if name not in inspect.signature(function).parameters:
                raise HintError(f"@recurrence: `{role}` names `{name}`, which is no argument of `{function.__name__}`")
        if ATTRIBUTE in vars(function):
            raise HintError(f"@recurrence is said twice of `{function.__name__}`; keep one of them")
        setattr(function, ATTRIBUTE, (hint,))
        return function

    return store
