"""Real values beside meta tensors, as far as they follow from token ids and positions alone.

A forward that asks whether a token occurs, or how long the longest position is, can so run on meta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import fx

from hfspeed.graph.networks import by_shape
from hfspeed.graph.tensors import tensors

READS: Final = frozenset(
    {
        "item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__", "equal", "allclose",
    }
)  # fmt: skip
"""Functions whose result is a plain value, not a tensor."""

SIZES: Final = frozenset({"shape", "ndim", "nbytes"})
"""Attributes of a tensor that say how large it is."""

QUESTIONS: Final = frozenset({"__bool__", "__contains__", "equal", "allclose"})
"""Those of them that are answered by yes or no."""

MISSING: Final = object()
LIKE: Final = {
    "zeros_like": 0, "ones_like": 0, "full_like": 0, "new_zeros": 0, "new_ones": 0, "new_full": 0, "new_tensor": 0,
    "to": 1, "type_as": 1, "expand_as": 1, "view_as": 1, "reshape_as": 1,
}  # fmt: skip
"""Functions that look only at the shape and type of the tensor at this place."""

MOST: Final = 1 << 24
"""Elements of a value that are still computed; what is larger is a mask or a table, which nobody reads off."""


class Shadows:
    """Values of meta tensors that depend on no weights.

    Args:
        given: pairs of a meta tensor and its value.
        guess: the answer to questions about tensors whose value is not known; without one, torch raises.
    """

    def __init__(self, given: Mapping[torch.Tensor, torch.Tensor], guess: bool | None = None) -> None:
        self.guess = guess
        self._known: dict[int, tuple[torch.Tensor, Any]] = {id(k): (k, v) for k, v in given.items()}

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The value of a meta tensor, where it is known; of a real one, itself."""
        found = self._real(tensor)
        return found if isinstance(found, torch.Tensor) else None

    def forget(self, graph: fx.Graph) -> None:
        """Let go of the values that were computed in ``graph``; what it was given stays known."""
        given = {id(node.meta.get("value")) for node in graph.nodes if node.op != "call_function"}
        for node in graph.nodes:
            value = node.meta.get("value")
            if id(value) not in given and node.meta.pop("shadow", None) is not None:
                self._known.pop(id(value), None)

    def run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``func(*args, **kwargs)``; what reads a value reads it off the shadow."""
        if (shaped := by_shape(func, args)) is not None:
            return shaped
        given = [*tensors(args), *tensors(kwargs)]
        if not self._known and self.guess is None:
            return func(*args, **kwargs)
        if given and not any(tensor.is_meta for tensor in given):
            result = func(*args, **kwargs)  # on values already; twice would be wrong where it writes
            if any(tensor.is_meta for tensor in tensors(result)):  # but not where it only moves to meta
                self._keep(result, self._shadow(func, args, kwargs))
            return result
        if getattr(func, "__name__", "") in READS:
            shadow = self._shadow(func, args, kwargs)
            if shadow is MISSING and self.guess is not None and func.__name__ in QUESTIONS:
                return self.guess
            return func(*args, **kwargs) if shadow is MISSING else shadow
        try:
            result = func(*args, **kwargs)  # first, for its size: on meta it takes no memory
        except (RuntimeError, NotImplementedError):
            return self._by_value(func, args, kwargs)  # it reads a value inside, such as what a tensor is filled with
        small = sum(tensor.numel() for tensor in tensors(result)) <= MOST
        shadow = self._shadow(func, args, kwargs) if small else MISSING
        if shadow is MISSING:
            self._forget(args[:1] if result is None else result)
        else:
            self._keep(result, shadow)
        return result

    def _by_value(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What ``func`` gives where all that it takes is known, or may be on meta; else it raises as it did."""
        name = getattr(func, "__name__", "")
        writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or "out" in kwargs
        shadow = MISSING if writes else self._shadow(func, args, kwargs)
        if isinstance(shadow, torch.Tensor):
            result = shadow.to("meta")
            self._keep(result, shadow)
            return result
        if writes or all(tensor.is_meta for tensor in (*tensors(args), *tensors(kwargs))):
            return func(*args, **kwargs)
        # it was made without a word where, and so on the CPU, where the model itself is when it is served there
        return self.run(func, self._moved(args), self._moved(kwargs))

    def _moved(self, value: Any) -> Any:
        """``value`` with all tensors on meta; what they were is known."""
        if isinstance(value, torch.Tensor) and not value.is_meta:
            moved = value.to("meta")
            self._keep(moved, value)
            return moved
        if type(value) in (tuple, list):
            return type(value)(self._moved(item) for item in value)
        return {key: self._moved(item) for key, item in value.items()} if isinstance(value, dict) else value

    def _forget(self, written: Any) -> None:
        """What was written to by something unknown is not known any more."""
        for tensor in tensors(written):
            self._known.pop(id(tensor), None)

    def _shadow(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(func, "__name__", "") == "__get__":
            return MISSING
        if getattr(func, "__name__", "") == "isnan" and self._real(args) is MISSING:
            # a forward that works has none, whatever its weights are; what else it does is never reached
            return torch.zeros((), dtype=torch.bool).expand(args[0].shape)
        real_args, real_kwargs = self._real(_known_by_shape(func, args)), self._real(kwargs)
        if real_args is MISSING or real_kwargs is MISSING:
            return MISSING
        try:
            return func(*real_args, **real_kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError):
            return MISSING  # the run itself will tell

    def _real(self, value: Any) -> Any:
        """``value`` with shadows for tensors and the CPU for meta; `MISSING` if a tensor has none."""
        if isinstance(value, torch.Tensor):
            known = self._known.get(id(value))
            return known[1] if known else value if not value.is_meta else MISSING
        if type(value) in (tuple, list):
            parts = [self._real(item) for item in value]
            return MISSING if any(part is MISSING for part in parts) else type(value)(parts)
        if isinstance(value, dict):
            items = {key: self._real(item) for key, item in value.items()}
            return MISSING if any(v is MISSING for v in items.values()) else items
        return "cpu" if isinstance(value, (torch.device, str)) and str(value) == "meta" else value

    def _keep(self, result: Any, shadow: Any) -> None:
        if isinstance(result, torch.Tensor) and isinstance(shadow, torch.Tensor) and result.is_meta:
            self._known[id(result)] = (result, shadow)
        elif isinstance(result, (tuple, list)) and isinstance(shadow, (tuple, list)):
            for one, other in zip(result, shadow, strict=False):
                self._keep(one, other)


def _known_by_shape(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` with a real tensor, of no particular values, where only shape and type of a meta tensor count."""
    at = LIKE.get(getattr(func, "__name__", ""), len(args))
    if at >= len(args) or not isinstance(args[at], torch.Tensor) or not args[at].is_meta:
        return args
    alike = torch.zeros((), dtype=args[at].dtype).expand(args[at].shape)
    return (*args[:at], alike, *args[at + 1 :])
