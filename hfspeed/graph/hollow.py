"""What a module would return that decides by values: it is run on zeros that take no memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from hfspeed.graph.tensors import tensors

NARROW = torch.bfloat16
"""What a module is run in that writes float32 and float64 into one another, as one that asks for float32 may."""
_KNOWN: dict[tuple[object, ...], Any] = {}
_TOLD: dict[tuple[object, ...], tuple[str, ...] | None] = {}


def on_meta(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of ``module(*args, **kwargs)``, on meta as its arguments are.

    Its shapes must not hang on values; see `template`, which finds out. Weights and arguments are zeros. What it
    leaves at itself for others to read, as losses of routers are left, is left at ``module`` too.

    Raises:
        Whatever the author's forward raises on zeros.
    """
    shapes = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in _named(module)]
    given = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors((args, kwargs))]
    key = (type(module), repr(shapes), repr(given))
    if key not in _KNOWN:
        try:
            _KNOWN[key] = _ran_on_zeros(module, args, kwargs)
        except RuntimeError:
            if all(dtype is not torch.float64 for _, dtype in given):
                raise
            _KNOWN[key] = _ran_on_zeros(module, args, kwargs, NARROW)
    result, left = _KNOWN[key]
    with torch._C.DisableTorchFunction():
        for path, name, value in left:
            vars(module.get_submodule(path))[name] = moved(value, "meta", anew=True)
        return moved(result, "meta", anew=True)


@contextmanager
def anew() -> Iterator[None]:
    """While it is on, modules are run that would otherwise be known, so that others see what their code makes."""
    known = dict(_KNOWN)
    _KNOWN.clear()
    try:
        yield
    finally:
        _KNOWN.update(known)


def _ran_on_zeros(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype = torch.float64
) -> tuple[Any, list[tuple[str, str, Any]]]:
    """The result, and what it left at itself; what is in float64 is in ``dtype`` meanwhile."""
    twin = hollow(module, dtype)
    with torch._C.DisableTorchFunction():
        result = moved(twin(*zeros(args, dtype), **zeros(kwargs, dtype)), "meta")
        return _widened(result, dtype), [(*at, _widened(value, dtype)) for *at, value in _left(twin, module)]


def _left(twin: nn.Module, module: nn.Module) -> Iterator[tuple[str, str, Any]]:
    """Attributes with tensors that ``twin`` has since it ran, and the paths of the modules that have them."""
    before = dict(module.named_modules(remove_duplicate=False))  # what is there twice is so in no twin
    for path, one in twin.named_modules():
        known = vars(before[path])
        for name, value in vars(one).items():
            own = name not in {"_parameters", "_buffers", "_modules"}
            if own and value is not known.get(name) and any(True for _ in tensors(value)):
                yield path, name, value


def template(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], tokens: int) -> tuple[str, ...] | None:
    """What ``module`` gives for any number of tokens: ``("Tx64", "1xTx8_float32")``; ``None`` if that hangs on values.

    Args:
        module: on meta or with values; it is run on zeros.
        args: what it was called with for ``tokens`` tokens.
        kwargs: the same by name.
        tokens: a number that is no other size in the arguments.

    A tensor of another dtype than the first argument's has it behind ``_``; ``none`` stands for nothing, and ``values``
    for plain values, or tensors among them. ``T`` is the number of tokens, ``2T`` twice that.
    """
    shapes = [(tuple(one.shape), str(one.dtype)) for one in tensors((args, kwargs))]
    key = (type(module), repr([tuple(one.shape) for _, one in _named(module)]), repr(shapes), tokens)
    if key not in _TOLD:
        _TOLD[key] = _template(module, args, kwargs, tokens)
    return _TOLD[key]


def _template(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], tokens: int) -> tuple[str, ...] | None:
    first = next((one.dtype for one in tensors((args, kwargs)) if one.is_floating_point()), torch.float32)
    many, few = (_results(module, sized(args, tokens, count), sized(kwargs, tokens, count)) for count in (tokens, 5))
    if many is None and first is torch.float64:
        first, args, kwargs = NARROW, zeros(args, NARROW), zeros(kwargs, NARROW)
        sizes = [(sized(args, tokens, count), sized(kwargs, tokens, count)) for count in (tokens, 5)]
        many, few = (_results(module, *given, NARROW) for given in sizes)
    if many is None or few is None or len(many) != len(few):
        return None
    told = [_told(one, other, tokens, first) for one, other in zip(many, few, strict=True)]
    return None if None in told else tuple(str(one) for one in told)


def fits(gives: tuple[str, ...], output: Any, tokens: int) -> bool:
    """Whether ``output``, for ``tokens`` tokens, has the shapes that `template` says."""
    found = [output] if isinstance(output, torch.Tensor) else list(output)
    return len(found) == len(gives) and all(_fits(told, one, tokens) for told, one in zip(gives, found, strict=True))


def _fits(told: str, one: Any, tokens: int) -> bool:
    if told in {"none", "values"} or not isinstance(one, torch.Tensor):
        return (one is None) == (told == "none") and not isinstance(one, torch.Tensor)
    sizes = told.partition("_")[0].replace("T", f"*{tokens}").split("x")
    return tuple(_number(size) for size in sizes) == tuple(one.shape)


def _number(told: str) -> int:
    factor, _, tokens = told.partition("*")
    return int(factor or 1) * int(tokens or 1)


def sized(value: Any, tokens: int, count: int) -> Any:
    """Zeros like ``value``, with dimensions of ``tokens`` made ``count``."""
    if isinstance(value, torch.Tensor):
        return torch.zeros([count if size == tokens else size for size in value.shape], dtype=value.dtype)
    if isinstance(value, Mapping):
        return {key: sized(item, tokens, count) for key, item in value.items()}
    if type(value) in {tuple, list}:
        return type(value)(sized(item, tokens, count) for item in value)
    return value


def _results(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype = torch.float64
) -> list[Any] | None:
    """A tensor alone, or the parts of a tuple of more than one; ``None`` for anything else, or if it does not run."""
    try:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            found = hollow(module, dtype)(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
        return None
    if isinstance(found, torch.Tensor):
        return [found]
    parts = list(found) if type(found) is tuple and len(found) > 1 else []
    return parts if any(isinstance(one, torch.Tensor) for one in parts) else None


def _told(one: Any, other: Any, tokens: int, dtype: torch.dtype) -> str | None:
    if one is None or other is None:
        return "none" if one is other else None
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return "values" if type(one) is type(other) else None
    if one.ndim != other.ndim or one.dtype != other.dtype:
        return None
    sizes = []
    for size, less in zip(one.shape, other.shape, strict=True):
        if size * 5 == less * tokens and size:
            sizes.append(f"{size // tokens if size > tokens else ''}T")
        elif size == less:
            sizes.append(str(size))
        else:
            return None
    kind = "" if one.dtype == dtype else f"_{str(one.dtype).removeprefix('torch.')}"
    return "x".join(sizes) + kind


def hollow(module: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A copy of ``module`` on the CPU whose parameters and buffers are zeros, each of one number's memory.

    Those in float64 are in ``dtype``.
    """
    twin = copy.copy(module)
    twin._parameters = {
        name: None if one is None else nn.Parameter(_zero(one, dtype), requires_grad=False)
        for name, one in module._parameters.items()
    }
    twin._buffers = {name: None if one is None else _zero(one, dtype) for name, one in module._buffers.items()}
    twin._modules = {name: None if one is None else hollow(one, dtype) for name, one in module._modules.items()}
    return twin


def zeros(value: Any, dtype: torch.dtype = torch.float64) -> Any:
    """``value`` with every tensor replaced by zeros on the CPU, those in float64 by some in ``dtype``."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=dtype if value.dtype is torch.float64 else value.dtype)
    if isinstance(value, Mapping):
        return {key: zeros(item, dtype) for key, item in value.items()}
    if type(value) in {tuple, list}:
        return type(value)(zeros(item, dtype) for item in value)
    return value


def moved(value: Any, device: str, *, anew: bool = False) -> Any:
    """``value`` with every tensor on ``device``; with ``anew`` none of them the same object as before."""
    if isinstance(value, torch.Tensor):
        return torch.empty_like(value, device=device) if anew else value.to(device)
    if type(value) in {tuple, list}:
        return type(value)(moved(item, device, anew=anew) for item in value)
    return value


def _zero(like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros((), dtype=dtype if like.dtype is torch.float64 else like.dtype).expand(like.shape)


def _widened(value: Any, dtype: torch.dtype) -> Any:
    """On meta, with what is in ``dtype`` in float64 again."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.float64) if value.dtype is dtype else value
    if type(value) in {tuple, list}:
        return type(value)(_widened(item, dtype) for item in value)
    return value


def _named(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
