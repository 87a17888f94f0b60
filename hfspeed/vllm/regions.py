"""Decoder layers as regions of a compiled graph: equal layers are traced and compiled once."""

from __future__ import annotations

import functools
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.compiler import nested_compile_region
from vllm.logger import init_logger

from hfspeed.errors import HfspeedError
from hfspeed.plan import (
    Attention,
    Column,
    Gated,
    Heads,
    Keep,
    Local,
    Norm,
    Op,
    Plan,
    Rotary,
    Row,
    Share,
    Stacked,
    Whole,
)
from hfspeed.vllm.artifacts import equal_graphs_only, whole_graphs
from hfspeed.vllm.stages import Elsewhere

logger = init_logger("vllm.hfspeed")
VARIABLE = "HFSPEED_REGIONS"
"""``off`` compiles the whole model as one piece."""
KNOWN = (Attention, Column, Gated, Heads, Keep, Local, Norm, Rotary, Row, Share, Stacked, Whole)
"""What takes nothing but tensors; other operations of a compiled graph are called with the name of their layer."""


def divides(plan: Plan, vllm_config: Any) -> bool:
    """Whether the decoder layers of ``plan`` are compiled apart.

    vLLM names each layer's attention to the operation that computes it, so no two layers would be equal; ours is told
    by a tensor which layer it is (`hfspeed.vllm.layers.attention`). Where vLLM cuts graphs at attention by itself, as
    it does on GPUs, and where a layer has other operations that are called by name, the graph stays whole.
    """
    if plan.stages is None or os.environ.get(VARIABLE) == "off" or not whole_graphs(vllm_config):
        return False
    if vllm_config.quant_config is not None or vllm_config.lora_config is not None:
        return False
    return all(_known(op) for op in plan.ops if op.path.startswith(f"{plan.stages.layers}."))


def _known(op: Op) -> bool:
    if isinstance(op, Attention):
        return op.calls == 1
    return not op.gives if isinstance(op, Keep) else isinstance(op, KNOWN)


class Regions:
    """The decoder layers of one model, each of which a compiler may take for a region.

    torch would share what it traced of one layer with the next after looking at guards alone, and some modules
    (`torch.nn.Identity`) have none. So every call is traced, and shares what is compiled with calls of equal graphs.

    Args:
        plan: what was decided.
        root: the model as it is served, built.
        divides: whether to make regions of them.
    """

    def __init__(self, plan: Plan, root: nn.Module, *, divides: bool) -> None:
        self.name = plan.architecture
        self.layers = list(_layers(plan, root)) if divides else []
        rest = plan.stages.rest if plan.stages is not None and plan.stages.tuple_output else None
        for layer in self.layers:
            kind: Any = type(layer)
            layer.__class__ = _region(kind, rest)

    def compiled(self, compile_: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """What ``compile_`` gives: of a model with regions, or as one piece if the compiler refuses them.

        A layer that gives back what it was given is no region, for example.

        Raises:
            HfspeedError: the author's code cannot be compiled at all.
        """
        if self.layers:
            try:
                with equal_graphs_only():
                    return compile_(*args, **keywords)
            except (RuntimeError, AssertionError, NotImplementedError) as why:
                logger.info("decoder layers are compiled as one piece, because they cannot be apart: %s", why)
            for layer in self.layers:
                layer.__class__ = type(layer).__mro__[1]
            self.layers = []
            torch.compiler.reset()
        try:
            return compile_(*args, **keywords)
        except TorchDynamoException as error:
            said = str(error).partition("\n")[0]
            raise HfspeedError(f"{self.name} cannot be compiled ({said}); pass --enforce-eager") from error


def _layers(plan: Plan, root: nn.Module) -> Iterator[nn.Module]:
    assert plan.stages is not None
    for layer in root.get_submodule(plan.stages.layers).children():
        if not isinstance(layer, Elsewhere):
            yield layer


@functools.cache
def _region(kind: Any, rest: int | None) -> type[Any]:
    """``kind``, whose forward is a region.

    Args:
        kind: the class of a layer.
        rest: how many values beside the first the layer returns in a tuple, all of them ``None``; ``None``: it
            returns the first alone.
    """
    theirs = kind.forward

    def region(self: Any, *args: Any, **keywords: Any) -> Any:
        out = theirs(self, *args, **keywords)
        if rest is None:
            return out
        if any(one is not None for one in out[1:]):
            raise RuntimeError(f"{kind.__name__} returns more than its first value")
        return out[0]

    apart = nested_compile_region(region, max_reuse_entries=sys.maxsize, reuse_hash_fn=_number)

    def forward(self: Any, *args: Any, **keywords: Any) -> Any:
        first = apart(self, *args, **keywords)
        return first if rest is None else (first, *[None] * rest)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _number(*_: Any, **__: Any) -> int:
    """By this torch tells what it has traced already; no two calls have the same, be they of one layer."""
    return _next()


@torch.compiler.assume_constant_result
def _next() -> int:
    return next(_COUNT)


_COUNT = itertools.count()
