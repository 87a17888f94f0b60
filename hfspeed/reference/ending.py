"""Logits by a forward that is base model and head in one: run on hidden states, with nothing before them."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from hfspeed.plan import Ending, Plan
from hfspeed.reference.asking import asked, scores


class StandsFor(nn.Module):
    """Takes the place of a module; attributes that it does not have are that module's."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.stands_for = (module,)  # in a tuple, so that it is no child

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["stands_for"][0], name)

    def __len__(self) -> int:
        return len(self.__dict__["stands_for"][0])


class Zeros(StandsFor):
    """Stands for a module that only leads to hidden states: gives zeros, one token for each of many sequences."""

    def __init__(self, module: nn.Module, shapes: tuple[str, ...], end: End) -> None:
        super().__init__(module)
        self.shapes, self.end = shapes, (end,)

    def forward(self, *_: Any, **__: Any) -> Any:
        """Zeros of the shapes that the plan says, in the dtype of hidden states."""
        like = self.end[0].hidden
        assert like is not None
        found = [_zeros(shape, like) for shape in self.shapes if shape]
        return found[0] if len(self.shapes) == 1 else tuple(found)


class End(StandsFor):
    """Stands for the module at which the base model ends, and has hidden states whatever it is called with."""

    def __init__(self, module: nn.Module, ending: Ending) -> None:
        super().__init__(module)
        self.ending = ending
        self.hidden: torch.Tensor | None = None

    def forward(self, *_: Any, **__: Any) -> Any:
        """What the module makes of the hidden states, or these."""
        return self.stands_for[0](self.hidden) if self.ending.given else self.hidden


class Tail:
    """The author's model with hidden states given at its ending.

    Works on a shallow copy; parameters and buffers are shared.

    Args:
        root: the author's ``ForCausalLM``, as it is or built.
        plan: with an ending.
    """

    def __init__(self, root: nn.Module, plan: Plan) -> None:
        assert plan.wrapper.ending is not None
        self.ending, self.first = plan.wrapper.ending, plan.wrapper.tokens_first
        self.wrapper = copy.copy(root)
        self.wrapper._modules = dict(root._modules)
        base = copied_down(self.wrapper, plan.wrapper.base)
        base.__class__ = authors(type(base), plan)
        self.end = End(root.get_submodule(self.ending.at), self.ending)
        put(self.wrapper, self.ending.at, self.end)
        for path, shapes in self.ending.absent:
            put(self.wrapper, path, Zeros(root.get_submodule(path), shapes, self.end))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[tokens, size]`` to ``[tokens, vocab]``: every token is the last of a sequence of its own."""
        self.end.hidden = hidden.unsqueeze(0 if self.first else 1)
        ids = torch.zeros(len(hidden), 1, dtype=torch.int64, device=hidden.device)
        try:
            found = scores(self.wrapper(**asked(self.wrapper, ids)))
        finally:
            self.end.hidden = None
        return found.reshape(len(hidden), -1)


def authors(cls: type[nn.Module], plan: Plan) -> type[nn.Module]:
    """The author's class, of which ``cls`` may be the one with the rewritten forward."""
    names = [(one.module, one.base) for one in plan.forwards if plan.wrapper.base in one.paths]
    return next((own for own in cls.__mro__ if (own.__module__, own.__qualname__) in names), cls)


def put(module: nn.Module, path: str, stand_in: nn.Module) -> None:
    """Put ``stand_in`` at ``path``, with copies of the modules on the way."""
    above, _, name = path.rpartition(".")
    copied_down(module, above)._modules[name] = stand_in


def copied_down(module: nn.Module, path: str) -> nn.Module:
    """The module at ``path`` below ``module``, every module on the way replaced by a shallow copy."""
    for name in path.split(".") if path else ():
        own = copy.copy(module._modules[name])
        assert own is not None
        own._modules = dict(own._modules)
        module._modules[name] = own
        module = own
    return module


def _zeros(shape: str, like: torch.Tensor) -> torch.Tensor | None:
    if shape == "none":
        return None
    sizes, _, kind = shape.partition("_")
    many = max(like.shape[:2])
    size = [many if one == "B" else 1 if one == "T" else int(one) for one in sizes.split("x") if one]
    return torch.zeros(size, dtype=getattr(torch, kind) if kind else like.dtype, device=like.device)
