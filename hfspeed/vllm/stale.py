"""What modules keep beside the tree: only in the tree do layers and loaded weights take a place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

from hfspeed.errors import RefusedError
from hfspeed.refusal import Reason, Refusal

OURS = ("vllm.", "hfspeed.vllm.")
REGISTRIES = {"_parameters", "_buffers", "_modules"}
DEPTH = 4
"""How deep containers and functions are looked into."""
HELP = "reach it through the tree: as a child under one name, or by its parent"


def check(architecture: str, root: nn.Module) -> None:
    """Refuse a model that keeps a module or parameter which is no longer, or never was, in its tree.

    A list, a dictionary or a function may hold what was exchanged; nobody would load its weights.

    Args:
        architecture: for the message.
        root: the author's model, built.

    Raises:
        RefusedError: it keeps something of the kind.
    """
    known = {id(one) for one in (*root.modules(), *root.parameters())}
    found = []
    for path, module in root.named_modules():
        if type(module).__module__.startswith(OURS):
            continue
        for name, value in vars(module).items():
            if name not in REGISTRIES and any(id(one) not in known for one in _held(value, DEPTH)):
                told = f"`{name}` keeps a module or parameter beside the tree, where its weights are not loaded"
                found.append(Refusal("model", Reason.USED_ELSEWHERE, told, path, help=HELP))
    if found:
        raise RefusedError(architecture, tuple(found))


def _held(value: Any, depth: int) -> Iterator[nn.Module | nn.Parameter]:
    """Modules with weights, and parameters, that a value reaches."""
    if isinstance(value, nn.Parameter):
        yield value
    elif isinstance(value, nn.Module):
        if any(True for _ in value.parameters()) and not type(value).__module__.startswith(OURS):
            yield value
    elif depth:
        for inner in _inside(value):
            yield from _held(inner, depth - 1)


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, MethodType):
        yield value.__self__
    elif isinstance(value, FunctionType):
        yield from inspect.getclosurevars(value).nonlocals.values()
        yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
    elif not isinstance(value, type | ModuleType | PreTrainedConfig):
        yield from getattr(value, "__dict__", {}).values()  # an object of the author's
