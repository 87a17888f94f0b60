"""What a Python value is at one moment, as something that can be compared with another value, or with itself later."""

from __future__ import annotations

import enum
import functools
from collections.abc import Hashable, Iterator
from typing import Any, Final

import torch

PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, enum.Enum)
"""Types whose values are equal if they look equal, and that nobody can change."""
_DEEP: Final = 3


def frozen(value: Any, depth: int = _DEEP) -> Hashable:
    """``value`` as it is now: plain values and what is made of them by content, objects by identity and attributes.

    Two values with the same frozen form cannot be told apart by code that reads them, as far as ``depth`` levels of
    attributes go; an object that is another one never equals.
    """
    if isinstance(value, PLAIN):
        return type(value), value
    if type(value) in (list, tuple, set, frozenset):
        parts = value if type(value) in (list, tuple) else sorted(value, key=repr)
        return type(value), tuple(frozen(part, depth) for part in parts)
    if type(value) is dict:
        return dict, tuple((frozen(name, depth), frozen(part, depth)) for name, part in value.items())
    if isinstance(value, Iterator):
        return Iterator, object()  # whoever asks it for the next value has changed it
    if isinstance(value, torch.Tensor):
        return torch.Tensor, id(value), value._version
    if type(value) is functools.partial:
        return functools.partial, frozen(value.func, depth), frozen(value.args, depth), frozen(value.keywords, depth)
    inside = getattr(value, "__dict__", None) if depth and not isinstance(value, type) and not callable(value) else None
    if not isinstance(inside, dict):
        return type(value), id(value)
    return type(value), id(value), tuple((name, frozen(part, depth - 1)) for name, part in inside.items())


def plain(value: Any) -> bool:
    """Whether nobody can change ``value``, nor anything in it."""
    return isinstance(value, PLAIN) or (type(value) is tuple and all(plain(part) for part in value))
