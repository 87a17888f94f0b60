"""Numbers of a model that neither its checkpoint nor its configuration fixes, or that loading and `eval()` change."""

from __future__ import annotations

import inspect
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from hfspeed.errors import SubjectError
from hfspeed.plan.paths import outer
from hfspeed.planner.build import build
from hfspeed.planner.study import Study
from hfspeed.refusal import Place, Reason, Refusal

_LIBRARIES = ("transformers.", "torch.")


def unfixed(small: Study) -> Refusal | None:
    """A refusal if the model that is served could have other numbers than the one that its author loads."""
    if no := _loaded(type(small.model)):
        return no
    try:
        other = _another(small)
    except SubjectError:
        return None
    return _folded(other) or _drawn(small, other)


def _loaded(model_class: type[Any]) -> Refusal | None:
    """Whoever loads in a way of their own may change weights behind the checkpoint's back."""
    owner = next(cls for cls in model_class.__mro__ if "from_pretrained" in vars(cls))
    if owner.__module__.startswith(_LIBRARIES):
        return None
    found = f"`{owner.__name__}.from_pretrained` is the author's own, and vLLM loads weights without it"
    help_ = "leave loading to transformers, and save the weights as they are to be served"
    return _told(model_class, found, vars(owner)["from_pretrained"], help_)


def _folded(model: Any) -> Refusal | None:
    """Weights that change between training and serving: they are loaded into a model that serves already."""
    before = {name: value.detach().clone() for name, value in _numbers(model)}
    changed = []
    for turn in (model.eval, model.train, model.eval):
        changed += [(name, value.detach().clone()) for name, value in _numbers(turn())]
    for name, value in changed:
        if name not in before or not _same(before[name], value):
            above = [type(model.get_submodule(path)) for path in (*reversed(outer(name)), "")]
            owner = next((cls for cls in above if cls.train is not nn.Module.train), type(model))
            found = f"`{name}` changes when `train()` and `eval()` are called"
            help_ = "save the weights as they are to be served, and leave `train()` as it is"
            return _told(owner, found, owner.train, help_)
    return None


def _another(small: Study) -> Any:
    """The small model built once more, with other random numbers, and not yet put to serving."""
    kind, config = type(small.model), small.model.config
    with torch.random.fork_rng(), patch.object(kind, "eval", lambda module: module):
        torch.manual_seed(1)
        return build(kind, config, device="cpu", dtype=torch.float64, interface=small.interface)


def _drawn(small: Study, other: Any) -> Refusal | None:
    """Buffers that are drawn, and kept in no checkpoint: every load has others."""
    for path, module in small.fresh.named_modules():
        for name in sorted(module._non_persistent_buffers_set):
            mine, theirs = module._buffers.get(name), getattr(other.get_submodule(path), name, None)
            if mine is None or not isinstance(theirs, torch.Tensor) or _same(mine.to(theirs.dtype), theirs):
                continue
            found = f"`{path}.{name}` is drawn anew whenever the model is built, and kept in no checkpoint"
            help_ = "make it persistent, or compute it from the configuration alone"
            return _told(type(module), found, type(module).__init__, help_)
    return None


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same; memory that nobody has written yet may hold what is no number."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _numbers(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*model.named_parameters(), *model.named_buffers()]


def _told(small_class: type[Any], found: str, owner: Any, help_: str) -> Refusal:
    place = Place.of(getattr(inspect.unwrap(getattr(owner, "__func__", owner)), "__code__", None))
    return Refusal("model", Reason.NUMBERS_DIFFER, found, small_class.__name__, place, help=help_)
