"""A built model asked the way a server asks: hidden states of one row, then logits of some of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from hfspeed.plan import Plan, Wrapper


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
    offered: dict[str, Any] = {"position_ids": positions, "token_positions": positions}
    if carried is None:
        offered["input_ids"] = tokens
    else:
        # The embedding lives elsewhere; the decoder replaces this by what is carried.
        offered["inputs_embeds"] = carried
    given = {name: value for name, value in offered.items() if name in plan.wrapper.keywords}
    if carried is not None:
        given["intermediate"] = turned(plan, carried)
    base = built.get_submodule(plan.wrapper.base)
    taken = inspect.signature(base.forward).parameters.values()
    if any(entry.name == "use_cache" or entry.kind is inspect.Parameter.VAR_KEYWORD for entry in taken):
        given["use_cache"] = False
    return turned(plan, first(base(**given)))


def turned(plan: Plan, hidden: torch.Tensor) -> torch.Tensor:
    """Hidden states from the author's order of dimensions to ``[1, tokens, size]``, or back."""
    return hidden.transpose(0, 1) if plan.wrapper.tokens_first else hidden


def logits(plan: Plan, model: nn.Module, given: torch.Tensor) -> torch.Tensor:
    """Run the author's own wrapper on hidden states; ``[1, tokens, size] -> [1, tokens, vocab]``.

    The base model is replaced by one that returns what it is given, for the time of the call.
    """
    with stands_in(plan, model, given):
        out = model(input_ids=None, use_cache=False)
    found = out.logits if hasattr(out, "logits") else out[0]
    assert isinstance(found, torch.Tensor)
    return found


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
