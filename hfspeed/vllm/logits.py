"""Logits by the author's own wrapper: everything it does between hidden states and logits is done."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from hfspeed.plan import Plan


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


class Given(StandsFor):
    """Stands for the base model: returns the hidden states it was given."""

    hidden: torch.Tensor | None = None
    bare = False
    parts = 0

    def forward(self, *_: Any, **__: Any) -> torch.Tensor | BaseModelOutputWithPast | tuple[Any, ...] | None:
        """The hidden states, as they are or as the first of what a base model returns."""
        if self.bare:
            return self.hidden
        if self.parts:
            return (self.hidden, *(None,) * (self.parts - 1))
        return _Output(last_hidden_state=self.hidden)


class _Output(BaseModelOutputWithPast):
    """A base model's result; fields that only some base models have are ``None``."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)


class Projection(StandsFor):
    """Stands for the output projection: whole logits from a projection that is split over the vocabulary."""

    def __init__(self, head: nn.Module, project: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__(head)
        self.project = project

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[1, tokens, size]`` to ``[1, tokens, vocab]``."""
        return self.project(hidden)


class Logits:
    """Runs the author's ``ForCausalLM.forward`` on given hidden states.

    Works on a shallow copy of the author's wrapper, in which the base model and the output projection are replaced;
    parameters and buffers of the wrapper itself are shared.
    """

    def __init__(self, root: nn.Module, plan: Plan, project: Callable[[torch.Tensor], torch.Tensor] | None) -> None:
        self.given = Given(root.get_submodule(plan.wrapper.base))
        self.given.bare, self.given.parts = plan.wrapper.bare, plan.wrapper.parts
        self.across = 1 if plan.wrapper.tokens_first else 0
        self.wrapper = copy.copy(root)
        self.wrapper._modules = dict(root._modules)
        base, head = plan.wrapper.base, plan.wrapper.head
        _put(self.wrapper, base, self.given)
        if project is None:  # a projection of the author's own making
            return
        if head.startswith(f"{base}."):  # the wrapper takes it from there
            head = head.removeprefix(f"{base}.")
            first = head.partition(".")[0]
            self.given._modules[first] = root.get_submodule(f"{base}.{first}")
            _put(self.given, head, Projection(root.get_submodule(plan.wrapper.head), project))
        else:
            _put(self.wrapper, head, Projection(root.get_submodule(plan.wrapper.head), project))

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[tokens, size]`` to ``[tokens, vocab]``."""
        self.given.hidden = hidden.unsqueeze(self.across)
        try:
            out = self.wrapper(input_ids=None, use_cache=False)
        finally:
            self.given.hidden = None
        logits: torch.Tensor = out.logits[0]
        return logits


def _put(module: nn.Module, path: str, stand_in: nn.Module) -> None:
    above, _, name = path.rpartition(".")
    _copied_down(module, above)._modules[name] = stand_in


def _copied_down(module: nn.Module, path: str) -> nn.Module:
    """The module at ``path`` below ``module``, every module on the way replaced by a shallow copy."""
    for name in path.split(".") if path else ():
        own = copy.copy(module._modules[name])
        assert own is not None
        own._modules = dict(own._modules)
        module._modules[name] = own
        module = own
    return module
