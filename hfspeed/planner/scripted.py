"""Functions that an author compiled with TorchScript, as plain Python: they compute the same."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch


def unscripted(model_class: type[Any]) -> None:
    """Put the Python originals in the place of scripted functions, in the modules that the class comes from.

    What TorchScript runs is decided by what it saw before, so one run would not speak for another.
    """
    for cls in model_class.__mro__:
        package, _, _ = cls.__module__.rpartition(".")
        beside = [name for name in list(sys.modules) if package and name.rpartition(".")[0] == package]
        for name in {cls.__module__, *beside} if not cls.__module__.startswith("torch.") else ():
            if isinstance(module := sys.modules.get(name), ModuleType):
                _mend(module)


def _mend(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        original = getattr(value, "_torchdynamo_inline", None) if isinstance(value, torch.jit.ScriptFunction) else None
        if original is not None:
            setattr(module, name, original)
