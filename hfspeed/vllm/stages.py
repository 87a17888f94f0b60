"""Pipeline stages: which layers live here, and what stands in for the others."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from vllm.distributed import get_pp_group
from vllm.model_executor.models.utils import PPMissingLayer

from hfspeed.plan import Plan
from hfspeed.vllm.versions import stage_span

HANDS_ON = "hands_on"
"""The attribute by which a rewritten decoder knows that another stage follows."""


class Elsewhere(PPMissingLayer):
    """A module that lives on another stage: it hands on its first argument.

    Keeps the plain attributes of the module it stands for, because a decoder may read them in its loop.
    """

    def __init__(self, module: nn.Module, *, in_tuple: bool = False, rest: int = 0) -> None:
        super().__init__()
        for name, value in vars(module).items():
            if not name.startswith("_") and name != "training":
                setattr(self, name, value)
        self.in_tuple, self.rest = in_tuple, rest
        weight = module._parameters.get("weight")
        self.row = None if weight is None or weight.ndim != 2 else (weight.dtype, weight.shape[-1])
        self.stands_for = (module,)  # in a tuple, so that it is no child

    def __getattr__(self, name: str) -> Any:
        """A child of the module that it stands for is elsewhere too, but a decoder may ask what it is."""
        child = self.__dict__["stands_for"][0]._modules.get(name) if "stands_for" in self.__dict__ else None
        return super().__getattr__(name) if child is None else Elsewhere(child)

    def forward(self, *args: Any, **keywords: Any) -> Any:
        """The first argument, in a tuple where the absent layer returns one."""
        first = args[0] if args else next(iter(keywords.values()))
        if self.row is not None and isinstance(first, torch.Tensor) and not first.is_floating_point():
            first = first.new_zeros(*first.shape, self.row[1], dtype=self.row[0])  # of token ids, rows of a table
        return (first, *[None] * self.rest) if self.in_tuple else first


def cut(plan: Plan, root: nn.Module) -> frozenset[str]:
    """Put placeholders where modules live on other stages, and tell the decoder whether to hand on.

    Args:
        plan: one that can be cut, if there are several stages (`hfspeed.vllm.layout.check`).
        root: the author's ``ForCausalLM``; changed in place.

    Returns:
        The paths that are not on this stage.
    """
    group = get_pp_group()
    if plan.stages is None:
        return frozenset()
    stages = plan.stages
    start, end = stage_span(stages.count)
    layers = root.get_submodule(stages.layers)
    gone = {f"{stages.layers}.{index}" for index in range(stages.count) if not start <= index < end}
    for path in gone:
        index = path.rpartition(".")[2]
        elsewhere = Elsewhere(getattr(layers, index), in_tuple=stages.tuple_output, rest=stages.rest)
        setattr(layers, index, elsewhere)
    outer = () if group.is_first_rank else stages.first
    inner = () if group.is_last_rank else (*stages.last, plan.wrapper.head)
    for path in (*outer, *inner):
        above, _, name = path.rpartition(".")
        parent = root.get_submodule(above)
        setattr(parent, name, Elsewhere(getattr(parent, name)))
        gone.add(path)
    setattr(root.get_submodule(stages.decoder), HANDS_ON, not group.is_last_rank)
    return frozenset(gone)


def is_here(root: nn.Module, path: str) -> bool:
    """Whether ``path`` is on this stage: no placeholder stands at it or above it."""
    module: Any = root
    for name in path.split("."):
        if isinstance(module, Elsewhere):
            return False
        module = module._modules.get(name)
        if module is None:
            return True
    return not isinstance(module, Elsewhere)


def empty_tensors(size: int) -> Any:
    """What vLLM wants as ``make_empty_intermediate_tensors`` for one carried value ``[tokens, size]``."""
    from vllm.model_executor.models.utils import make_empty_intermediate_tensors_factory

    return make_empty_intermediate_tensors_factory(["hidden_states"], size)


def carried(intermediate: Any) -> torch.Tensor | None:
    """The value from the stage before, ``[tokens, size]``; ``None`` on the first stage."""
    return None if intermediate is None else intermediate["hidden_states"]
