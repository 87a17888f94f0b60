"""Logits by the author's own wrapper: everything it does between hidden states and logits is done."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPast

from hfspeed.plan import Plan
from hfspeed.reference.asking import asked, scores
from hfspeed.reference.ending import StandsFor, Tail, put


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
        self.tail = Tail(root, plan) if plan.wrapper.ending is not None else None
        if self.tail is not None:
            self._projected(root, plan, self.tail, project)
            return
        self.given = Given(root.get_submodule(plan.wrapper.base))
        self.given.bare, self.given.parts = plan.wrapper.bare, plan.wrapper.parts
        self.across = 1 if plan.wrapper.tokens_first else 0
        self.wrapper = copy.copy(root)
        self.wrapper._modules = dict(root._modules)
        base, head = plan.wrapper.base, plan.wrapper.head
        put(self.wrapper, base, self.given)
        if project is None:  # a projection of the author's own making
            return
        if head.startswith(f"{base}."):  # the wrapper takes it from there
            head = head.removeprefix(f"{base}.")
            first = head.partition(".")[0]
            self.given._modules[first] = root.get_submodule(f"{base}.{first}")
            put(self.given, head, Projection(root.get_submodule(plan.wrapper.head), project))
        else:
            put(self.wrapper, head, Projection(root.get_submodule(plan.wrapper.head), project))

    @staticmethod
    def _projected(
        root: nn.Module, plan: Plan, tail: Tail, project: Callable[[torch.Tensor], torch.Tensor] | None
    ) -> None:
        """Let the tail make whole logits, at its ending or behind it."""
        if project is None:
            return
        whole = Projection(root.get_submodule(plan.wrapper.head), project)
        below = plan.wrapper.head.removeprefix(f"{tail.ending.at}.")
        if tail.ending.at == plan.wrapper.head:
            tail.end.stands_for = (whole,)
        elif below != plan.wrapper.head:  # the ending is a head of several modules
            several = copy.copy(root.get_submodule(tail.ending.at))
            several._modules = dict(several._modules)
            put(several, below, whole)
            tail.end.stands_for = (several,)
        else:
            put(tail.wrapper, plan.wrapper.head, whole)

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """``[tokens, size]`` to ``[tokens, vocab]``."""
        if self.tail is not None:
            return self.tail(hidden)
        self.given.hidden = hidden.unsqueeze(self.across)
        try:
            found = scores(self.wrapper(**asked(self.wrapper, None)))
        finally:
            self.given.hidden = None
        return found[0]
