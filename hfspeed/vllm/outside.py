"""Modules that decide by values: they run as one operation that no compiled graph looks into."""

from __future__ import annotations

import ast
import functools
import math
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from hfspeed.errors import PlanError, RefusedError
from hfspeed.refusal import Reason, Refusal
from hfspeed.vllm.site import Site
from hfspeed.vllm.versions import compiles, outside_of_graphs

TENSOR = "T"
"""Stands for a tensor among the arguments told."""
_RUNS: weakref.WeakValueDictionary[str, Outside] = weakref.WeakValueDictionary()


class Outside:
    """The author's forward of one module, as an operation of its own.

    Args:
        forward: the author's.
        gives: the shapes of its results; see `Keep`.
        axis: where tokens lie in the first tensor of numbers; by default in all dimensions but the last.
        name: unique in the process.
    """

    def __init__(self, forward: Callable[..., Any], gives: tuple[str, ...], name: str, axis: int | None = None) -> None:
        self.forward, self.gives, self.name, self.axis = forward, gives, name, axis

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the author's forward; arguments are tensors, tuples or dictionaries of them, numbers or nothing."""
        given, said = [], []
        for place, value in (*enumerate(args), *kwargs.items()):
            if isinstance(value, torch.Tensor):
                given.append(value)
                said.append(f"{place}={TENSOR}")
            elif value is None or isinstance(value, bool | int | float):
                said.append(f"{place}={value}")
            elif isinstance(value, tuple) and all(isinstance(one, torch.Tensor) for one in value):
                given += value
                said.append(f"{place}={TENSOR * len(value)},")
            elif isinstance(value, dict) and all(isinstance(one, torch.Tensor | tuple) for one in value.values()):
                parts = []
                for name, one in value.items():
                    given += (one,) if isinstance(one, torch.Tensor) else one
                    count = TENSOR if isinstance(one, torch.Tensor) else f"{TENSOR * len(one)},"
                    parts.append(f"{name}:{count}")
                said.append(f"{place}={{{'|'.join(parts)}}}")
            else:
                raise PlanError(f"{self.name} is called with a {type(value).__name__}, which no operation takes")
        results = torch.ops.hfspeed.outside(given, ";".join(said), self.name)
        return results[0] if len(self.gives) == 1 else self.spread(results)

    def run(self, given: list[torch.Tensor], said: str) -> list[torch.Tensor]:
        """The author's results, those that are tensors."""
        left = iter(given)
        args, kwargs = [], {}
        for place, _, told in (entry.partition("=") for entry in said.split(";")):
            value: Any
            if told.startswith("{"):
                parts = (part.partition(":") for part in told[1:-1].split("|"))
                value = {name: _tensors(inner, left) for name, _, inner in parts}
            else:
                value = _tensors(told, left) if re.fullmatch(f"{TENSOR}+,?", told) else ast.literal_eval(told)
            if place.isdigit():
                args.append(value)
            else:
                kwargs[place] = value
        found = self.forward(*args, **kwargs)
        results = [found] if isinstance(found, torch.Tensor) else [one for one in found if one is not None]
        # an operation may not return what it was given
        return [one.clone() if any(one is tensor for tensor in given) else one for one in results]

    def shapes(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """Empty results of the right shapes."""
        first = next(tensor for tensor in given if tensor.is_floating_point())
        # `Size.numel()` would fix the number of tokens that a graph is compiled for
        tokens = math.prod(first.shape[:-1]) if self.axis is None else first.shape[self.axis]
        return [_empty(first, tokens, told) for told in self.gives if told != "none"]

    def spread(self, results: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        """The author's tuple again, with what is no tensor in its place."""
        left = iter(results)
        return tuple(None if told == "none" else next(left) for told in self.gives)


def outside(module: nn.Module, name: str, gives: tuple[str, ...], site: Site, *, axis: int | None = None) -> None:
    """Let ``module`` run as one operation; its class and the names of its parameters stay what they are.

    Raises:
        RefusedError: it hands on plain values, which no compiled graph can, and the model is to be compiled.
    """
    if "values" in gives:
        if compiles(site.vllm_config):
            found = f"`{type(module).__name__}` hands on values that it read off tensors, which no compiled graph can"
            told = Refusal("experts", Reason.CANNOT_RUN, found, name, help="pass --enforce-eager")
            raise RefusedError(f"{type(site.root).__name__} (--enforce-eager serves it)", (told,))
        return
    _operation()
    outside_of_graphs(site.vllm_config, "hfspeed::outside")
    run = Outside(module.forward, gives, f"{name}#{id(module)}", axis)
    _RUNS[run.name] = run
    module.forward = run


def _tensors(told: str, left: Iterator[torch.Tensor]) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """One tensor, or a tuple of them where a comma ends what is told."""
    return tuple(next(left) for _ in told[:-1]) if told.endswith(",") else next(left)


def _empty(like: torch.Tensor, tokens: int, told: str) -> torch.Tensor:
    sizes, _, kind = told.partition("_")
    shape = []
    for size in sizes.split("x"):
        match = re.fullmatch(r"~?(\d*)(T?)", size)
        if match is None:
            raise PlanError(f"{told!r} is no shape; expected one like 1xTx64")
        shape.append((int(match[1]) if match[1] else 1) * (tokens if match[2] else 1))
    return like.new_empty(shape, dtype=getattr(torch, kind) if kind else like.dtype)


@functools.cache
def _operation() -> Any:
    """``torch.ops.hfspeed.outside``, made known once."""

    def run(given: list[torch.Tensor], said: str, name: str) -> list[torch.Tensor]:
        return _RUNS[name].run(given, said)

    def shapes(given: list[torch.Tensor], said: str, name: str) -> list[torch.Tensor]:  # noqa: ARG001  one signature
        return _RUNS[name].shapes(given)

    schema = "(Tensor[] given, str said, str name) -> Tensor[]"
    made = torch.library.custom_op("hfspeed::outside", run, mutates_args=(), schema=schema)
    made.register_fake(shapes)
    return torch.ops.hfspeed.outside
