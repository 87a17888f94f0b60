"""Whether a function of the author's computes what its name or a hint says: it is run beside the kernel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from hfspeed.graph.exact import Exact
from hfspeed.recurrences import Kernel, Unsupported
from hfspeed.recurrences.samples import CHOICES, SAMPLES, sample

LIBRARIES = {"causal_conv1d", "fla", "mamba_ssm", "transformers"}
"""Packages whose functions are what their names say."""

APART = 1e-8
"""The relative error, in float64, from which numbers are other numbers."""

RAISED = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a function may raise that is given something else than it takes."""


def of_a_library(function: Callable[..., Any]) -> bool:
    """Whether a function comes from a package that gave the name its meaning."""
    return (getattr(function, "__module__", None) or "").partition(".")[0] in LIBRARIES


@functools.lru_cache(maxsize=1024)
def computes(function: Callable[..., Any], kernel: Kernel, names: tuple[str, ...]) -> bool | None:
    """Whether a function gives the numbers of a kernel, whatever it is given.

    It is run on few tokens and on many, narrow and wide, on tiny and on huge values, with each of its settings: a
    branch, a bound or a memory that ends shows in one of them.

    Args:
        function: the author's, in plain torch.
        kernel: what it is said to compute.
        names: its arguments, in the kernel's words where a hint says so (``a=q``).

    Returns:
        ``None`` if it does not run on what the kernel takes, so that nothing is known.
    """
    said = [name.partition("=") for name in names if not name.startswith("return=")]
    roles = {name: role or kernel.aliases.get(name, name) for name, _, role in said}
    try:
        others = _others(function, kernel, roles)
        with torch.device("cpu"), torch.no_grad():
            return all(_agrees(function, kernel, names, given | others) for given in _calls(kernel, roles))
    except (*RAISED, Unsupported):
        return None


def _others(function: Callable[..., Any], kernel: Kernel, roles: dict[str, str]) -> dict[str, Any]:
    """Values of what must be given and is no operand: how many tokens at once, or the module of a method."""
    found: dict[str, Any] = {}
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in {one.VAR_POSITIONAL, one.VAR_KEYWORD} or one.default is not one.empty:
            continue
        if roles.get(name) in kernel.roles:
            continue
        if name in kernel.free:
            found[name] = 64
        elif name == "self" or name in roles:
            found[name] = None
    return found


def _calls(kernel: Kernel, roles: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The arguments of each call that is tried."""
    names = {role: name for name, role in roles.items()}
    settings = {names[role]: values for role, values in CHOICES.items() if role in kernel.usual and role in names}
    spare = [names[role] for role in kernel.roles if role in names and role not in kernel.needed]
    for one in SAMPLES:
        whole = {names[role]: value for role, value in sample(kernel.kind, one).items() if role in names}
        yield whole
        if one is not SAMPLES[0]:
            continue
        for name in spare:
            yield {**whole, name: None}
        for name, values in settings.items():
            yield from ({**whole, name: value} for value in values)
        yield {**whole, **{name: values[0] for name, values in settings.items()}}


def _agrees(function: Callable[..., Any], kernel: Kernel, names: Sequence[str], given: dict[str, Any]) -> bool:
    keywords = {name: value for name, value in given.items() if name != "self"}
    with Exact():
        bound = kernel.bind([name for name in names if name != "self"], (), keywords)
        kernel.check(bound)
        like = kernel.like(bound.operands)
        empty = like.new_zeros(like.shape[0], *kernel.state(bound.operands))
        ours = kernel.run(bound.operands, bound.settings, empty)[0]
        theirs = function(**{name: _own(value) for name, value in given.items()})
    theirs = theirs[0] if isinstance(theirs, tuple | list) else theirs
    if not isinstance(theirs, torch.Tensor) or theirs.shape != ours.shape:
        return False
    largest = float(theirs.abs().max())
    return float((theirs.to(ours.dtype) - ours).abs().max()) <= APART * max(largest, 1e-30)


def _own(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
