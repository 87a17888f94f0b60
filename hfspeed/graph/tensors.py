"""Tensors inside nested values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn


def held(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Every buffer and parameter under each of its names."""
    yield from model.named_buffers(remove_duplicate=False)
    yield from model.named_parameters(remove_duplicate=False)


def items(value: Any) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a tuple, list, mapping or dataclass; nothing for anything else."""
    if isinstance(value, (tuple, list)):
        yield from enumerate(value)
    elif isinstance(value, Mapping):
        yield from value.items()
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and mappings, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    else:
        for _, item in items(value):
            yield from tensors(item)


def pairs(one: Any, other: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors of two values of one shape, side by side."""
    yield from zip(tensors(one), tensors(other), strict=False)


def copied(value: Any) -> Any:
    """``value`` with every tensor in plain tuples, lists and dicts copied."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return type(value)(copied(item) for item in value)
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value
