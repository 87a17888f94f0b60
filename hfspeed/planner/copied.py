"""A copy of a model that never ran; tensors that were computed while it was built cannot be copied."""

from __future__ import annotations

import copy
from typing import Any, Final

import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.plan.paths import outer
from hfspeed.refusal import Place, Reason, Refusal

HELP: Final = "compute it in the forward; `torch.nn.utils.parametrizations` keeps parameters alone in a module"


def copied(model: Any) -> Any:
    """A copy of ``model``.

    Raises:
        RefusedError: modules keep what was computed from parameters, which loaded weights would not change.
    """
    refused = tuple(
        _told(model, path, name)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    )
    if refused:
        raise RefusedError(type(model).__name__, refused[:1])
    return copy.deepcopy(model)


def _told(model: nn.Module, path: str, name: str) -> Refusal:
    """At the constructor of the author's class that the module is made in."""
    classes = [type(model.get_submodule(one)) for one in (path, *reversed(outer(path)), "")]
    made = next((cls for cls in classes if not cls.__module__.startswith("torch.")), type(model))
    place = Place.of(getattr(made.__init__, "__code__", None))
    found = f"`{name}` is computed from parameters while the model is built, and loaded weights do not change it"
    return Refusal("model", Reason.NUMBERS_DIFFER, found, path, place, help=HELP)
