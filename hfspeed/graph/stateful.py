"""Functions that carry a state from token to token: those of libraries, and others that compute the same."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn

from hfspeed.graph.tried import computes, of_a_library
from hfspeed.hints.hint import Hint, read
from hfspeed.recurrences import Kernel, Unsupported, kernel_of, named, told_by

MARKER = "use_kernel_func_from_hub_with_fallback"
"""transformers' decorator: the function is the plain twin of a library's kernel, whose name is the first argument."""

LONG = 128
"""Tokens from which on a recorded run takes our kernel's numbers: no proof looks at those."""


def is_stateful(node: object) -> bool:
    """A call of a stateful function, or of one of torch's modules that mix tokens causally."""
    return isinstance(node, fx.Node) and kernel_at(node) is not None


def kernel_at(node: fx.Node) -> Kernel | None:
    """What a call computes from token to token."""
    if node.op == "call_function":
        return stateful(node.target)
    module = node.meta.get("module")
    if isinstance(module, nn.Conv1d) and _causal(module):
        return named("causal_conv1d_fn")
    if isinstance(module, nn.ZeroPad2d) and tuple(module.padding) == (0, 0, 1, -1):
        return named("token_shift")
    return None


def _causal(conv: nn.Conv1d) -> bool:
    """Each channel alone, and as much padding on the left as makes the first results causal."""
    plain = conv.stride == (1,) and conv.dilation == (1,) and conv.padding_mode == "zeros"
    depthwise = conv.groups == conv.in_channels == conv.out_channels
    return plain and depthwise and conv.padding == (conv.kernel_size[0] - 1,) and conv.kernel_size[0] > 1


def stateful(function: Any) -> Kernel | None:
    """What a function computes: by a hint, or by its marker or name if it comes from a library or is tried beside it.

    An author may give a function any name; it may forget after some tokens, or do something with a large value.
    """
    return _stateful(function) if isinstance(function, FunctionType) else None


@functools.lru_cache(maxsize=4096)
def _stateful(function: FunctionType) -> Kernel | None:
    if (hint := said_of(function)) is not None:
        said = kernel_of(dict(hint.names)["kind"])
        tried(function, said)  # before anything is recorded; a false hint is an error at its line
        return said
    kernel = _called(function)
    if kernel is None or of_a_library(inspect.unwrap(function)):
        return kernel
    found = tried(function, kernel)
    meant = _marked(inspect.unwrap(function)) is not None  # then it may take just the shapes that its module has
    return kernel if found or (meant and found is None) else None


def _called(function: FunctionType) -> Kernel | None:
    """What the marker on a function, its name or those of its arguments promise."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if code else ()
    return named(_marked(inner) or "") or named(inner.__name__) or told_by(arguments)


def misnamed(cls: type[Any]) -> tuple[str, ...]:
    """Functions of the file of a class that have a library's name, or its arguments, and compute something else."""
    file = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    own = {name: one for name, one in file.items() if isinstance(one, FunctionType)}
    used = {
        name for method in vars(cls).values() if isinstance(method, FunctionType) for name in method.__code__.co_names
    }
    return tuple(
        name for name in own if name in used and _called(own[name]) is not None and stateful(own[name]) is None
    )


def tried(function: FunctionType, kernel: Kernel) -> bool | None:
    """Whether a function of the author's, run by itself, gives the kernel's numbers; ``None`` if it does not run so."""
    return computes(inspect.unwrap(function), kernel, parameters_of(function, method=True))


@functools.lru_cache(maxsize=4096)
def _marked(function: Callable[..., Any]) -> str | None:
    """The kernel's name in the marker on a function."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
    if MARKER not in source:
        return None
    for definition in ast.parse(source).body:
        for mark in getattr(definition, "decorator_list", []):
            called = mark.func if isinstance(mark, ast.Call) else None
            name = getattr(called, "id", getattr(called, "attr", ""))
            if name == MARKER and isinstance(mark.args[0], ast.Constant):
                return str(mark.args[0].value)
    return None


def said_of(function: Any) -> Hint | None:
    """The hint above a function, under whatever was put around it."""
    return next((hint for hint in read(inspect.unwrap(function)) if hint.kind == "recurrence"), None)


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in plain torch, called as its marker calls it: keywords it does not know are dropped."""
    inner: Callable[..., Any] = inspect.unwrap(function)
    parameters = inspect.signature(inner).parameters
    if inner is function or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return inner

    @functools.wraps(inner)
    def call(*args: Any, **keywords: Any) -> Any:
        return inner(*args, **{name: value for name, value in keywords.items() if name in parameters})

    return call


@contextmanager
def watched(model: nn.Module, leaf: Callable[..., Any]) -> Iterator[None]:
    """While the block runs, stateful functions that the model calls go through ``leaf(function, args, keywords)``."""
    kept = [
        (owner, name, value)
        for owner in _owners(model)
        for name, value in list(vars(owner).items())
        if isinstance(value, FunctionType) and stateful(value) is not None
    ]
    for owner, name, value in kept:  # when all have been tried, since one may call another
        setattr(owner, name, _through(value, leaf, method=isinstance(owner, type)))
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def _through(function: FunctionType, leaf: Callable[..., Any], *, method: bool) -> Callable[..., Any]:
    if not method:
        inner = _quick(function, plain(function))

        def call(*args: Any, **keywords: Any) -> Any:
            return leaf(inner, args, keywords)

        return call

    def called_on(module: Any, *args: Any, **keywords: Any) -> Any:
        return leaf(_quick(function, functools.partial(function, module)), args, keywords)

    return called_on


def parameters_of(function: Callable[..., Any], *, method: bool = False) -> tuple[str, ...]:
    """The names of a function's arguments, in order; ``a=q`` where a hint says that it is ``q``.

    Without ``self``, unless they are those of a ``method`` that is called by its function.
    """
    parameters = inspect.signature(inspect.unwrap(function)).parameters.values()
    names = [p.name for p in parameters if p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}]
    hint = said_of(function)
    said = dict(hint.names) if hint is not None else {}
    roles = {name: role for role, name in said.items()}
    found = [f"{name}={roles[name]}" if roles.get(name, name) != name else name for name in names]
    found = found[1:] if names[:1] == ["self"] and not method else found
    return (*found, f"return={said['returns']}") if said else tuple(found)


def _quick(function: FunctionType, called: Callable[..., Any]) -> Callable[..., Any]:
    """``called``, but without its loop over tokens where only shapes matter, or where there are many of them."""
    kernel, names = stateful(function), parameters_of(function)
    assert kernel is not None

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            bound = kernel.bind(names, args, keywords)
            kernel.check(bound)
        except Unsupported:
            return called(*args, **keywords)
        like = kernel.like(bound.operands)
        empty = like.new_zeros(like.shape[0], *kernel.state(bound.operands))
        if like.is_meta:
            out = torch.empty_like(like)
        elif like.shape[kernel.axis] > LONG and (said_of(function) is None or tried(function, kernel)):
            out, empty = kernel.run(bound.operands, bound.settings, empty)
        else:
            return called(*args, **keywords)
        return (out, empty if bound.asked else None) if bound.pair else out

    return call


def _owners(model: nn.Module) -> Iterator[Any]:
    """Where the modules' code looks names up: the modules themselves, their classes, and the files of those."""
    seen: set[Any] = set()
    for module in model.modules():
        yield module
        for owner in type(module).__mro__:
            if owner in seen or owner.__module__ == "builtins" or owner.__module__.startswith("torch."):
                continue
            seen.add(owner)
            yield owner
            file = sys.modules.get(owner.__module__)
            if file is not None and file not in seen:
                seen.add(file)
                yield file
