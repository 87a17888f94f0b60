"""A built model asked the way a server asks: hidden states of one row, then logits of some of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from hfspeed.plan import Plan, Wrapper
from hfspeed.reference.asking import asked, scores
from hfspeed.reference.ending import Tail


def hidden(
    plan: Plan,
    built: nn.Module,
    tokens: torch.Tensor,
    positions: torch.Tensor,
    carried: torch.Tensor | None = None,
) -> torch.Tensor:
    """Run the base model.

    Args:
        plan: what ``built`` was built from.
        built: one rank of one stage.
        tokens: ``[1, tokens]`` numbers.
        positions: ``[1, tokens]``, each sequence from 0.
        carried: ``[1, tokens, size]`` from the stage before.

    Returns:
        ``[1, tokens, size]``: hidden states, or what the next stage takes.
    """
    positions = positions + plan.wrapper.first_position
    base = built.get_submodule(plan.wrapper.base)
    offered: dict[str, Any] = {"position_ids": positions, "token_positions": positions}
    if carried is None:
        offered[plan.wrapper.ids] = tokens
    else:
        # The embedding lives elsewhere; the decoder replaces this by what is carried.
        offered |= unread(plan, base, {"inputs_embeds": carried}, tokens)
    given = {name: value for name, value in offered.items() if name in {*plan.wrapper.keywords, plan.wrapper.ids}}
    given |= constants(plan)
    if carried is not None:
        given["intermediate"] = turned(plan, carried)
    taken = inspect.signature(base.forward).parameters.values()
    if any(entry.name == "use_cache" or entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken):
        given["use_cache"] = False
    return turned(plan, first(base(**given)))


def constants(plan: Plan) -> dict[str, Any]:
    """What is always said to the base model, because the wrapper says it."""
    return {name: ast.literal_eval(value) for name, value in plan.wrapper.constants}


def unread(plan: Plan, base: nn.Module, embedded: dict[str, Any], tokens: torch.Tensor) -> dict[str, Any]:
    """What a base model on a later stage is called with, though it reads none of it: embeddings, or token ids."""
    ids = plan.wrapper.ids
    needed = inspect.signature(base.forward).parameters[ids].default is inspect.Parameter.empty
    if "inputs_embeds" not in plan.wrapper.keywords:
        return {ids: torch.zeros_like(tokens)}
    return embedded | ({ids: None} if needed else {})


def turned(plan: Plan, hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states from the author's order of dimensions to ``[1, tokens, size]``, or back."""
    return hidden.transpose(0, 1) if plan.wrapper.tokens_first else hidden


def logits(plan: Plan, model: nn.Module, given: torch.Tensor) -> torch.Tensor:
    """Run the author's own wrapper on hidden states; ``[1, tokens, size] -> [1, tokens, vocab]``.

    The base model is replaced by one that returns what it is given, for the time of the call.
    """
    if plan.wrapper.ending is not None:
        return Tail(model, plan)(given[0])[None]
    with stands_in(plan, model, given):
        return scores(model(**asked(model, None)))


@contextmanager
def stands_in(plan: Plan, model: nn.Module, given: torch.Tensor) -> Iterator[None]:
    """Let the base model return ``given``, ``[1, tokens, size]``, whatever it is asked."""
    above, _, name = plan.wrapper.base.rpartition(".")
    holder = model.get_submodule(above)
    base = holder._modules[name]
    holder._modules[name] = _Given(turned(plan, given), base, plan.wrapper)
    try:
        yield
    finally:
        holder._modules[name] = base


def watched(plan: Plan, model: nn.Module, found: list[torch.Tensor]) -> Any:
    """Add the author's hidden states, ``[1, tokens, size]``, of each run to ``found``, until the hook is removed."""
    end = plan.wrapper.ending
    module = model.get_submodule(plan.wrapper.base if end is None else end.at)
    if end is not None and end.given:
        return module.register_forward_pre_hook(lambda _module, args: found.append(turned(plan, first(args))))
    return module.register_forward_hook(lambda _module, _args, output: found.append(turned(plan, first(output))))


def first(output: Any) -> torch.Tensor:
    """The first tensor of what a module returned."""
    found = output if isinstance(output, torch.Tensor) else output[0]
    assert isinstance(found, torch.Tensor)
    return found


class _Given(nn.Module):
    """Stands for the base model: returns what it was given; other attributes are the base model's."""

    def __init__(self, given: torch.Tensor, base: nn.Module | None, wrapper: Wrapper) -> None:
        super().__init__()
        self.given = given
        self.wrapper = wrapper
        self.stands_for = (base,)  # in a tuple, so that it is no child

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["stands_for"][0], name)

    def forward(self, *_args: Any, **_keywords: Any) -> torch.Tensor | tuple[torch.Tensor | None, ...]:
        if self.wrapper.bare:
            return self.given
        if self.wrapper.parts:
            return (self.given, *(None,) * (self.wrapper.parts - 1))
        return _Output(self.given)


class _Output(tuple[torch.Tensor]):
    """What a base model returns: the hidden states, under their name and as the first of a tuple; all else is None."""

    __slots__ = ()

    def __new__(cls, given: torch.Tensor) -> Self:
        return super().__new__(cls, (given,))

    @property
    def last_hidden_state(self) -> torch.Tensor:
        return self[0]

    def __getattr__(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)
