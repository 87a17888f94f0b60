"""Decoder layers as regions of a compiled graph: equal layers are traced and compiled once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn
from torch.compiler import nested_compile_region

from hfspeed.plan import Attention, Column, Gated, Heads, Keep, Local, Norm, Op, Plan, Rotary, Row, Stacked, Whole
from hfspeed.vllm.artifacts import whole_graphs
from hfspeed.vllm.stages import Elsewhere

VARIABLE = "HFSPEED_REGIONS"
"""``off`` compiles the whole model as one piece."""
KNOWN = (Attention, Column, Gated, Heads, Keep, Local, Norm, Rotary, Row, Stacked, Whole)
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

    Args:
        plan: what was decided.
        root: the model as it is served, built.
        divides: whether to make regions of them.
    """

    def __init__(self, plan: Plan, root: nn.Module, *, divides: bool) -> None:
        self.layers = list(_layers(plan, root)) if divides else []
        self._mark()

    def compiled(self, compile_: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """What ``compile_`` gives: of a model with regions, or as one piece if the compiler refuses them.

        A layer that gives back what it was given, or that changes something beside tensors, is no region.
        """
        try:
            return compile_(*args, **keywords)
        except (RuntimeError, AssertionError, NotImplementedError):
            if not self.layers:
                raise
        self._unmark()
        return compile_(*args, **keywords)

    def _mark(self) -> None:
        for layer in self.layers:
            layer.__class__ = _region(type(layer))

    def _unmark(self) -> None:
        for layer in self.layers:
            layer.__class__ = type(layer).__mro__[1]
        self.layers = []


def _layers(plan: Plan, root: nn.Module) -> Iterator[nn.Module]:
    assert plan.stages is not None
    for layer in root.get_submodule(plan.stages.layers).children():
        if not isinstance(layer, Elsewhere):
            yield layer


@functools.cache
def _region(kind: type[nn.Module]) -> type[nn.Module]:
    """``kind``, whose forward is a region."""
    found = {"forward": nested_compile_region(kind.forward, max_reuse_entries=4096), "__module__": kind.__module__}
    return type(kind.__name__, (kind,), found)
