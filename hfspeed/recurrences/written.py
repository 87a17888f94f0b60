"""A module that attends as its author wrote it: eagerly, with masks made for the tokens that it is given."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from hfspeed.errors import PlanError

WRITTEN: Final = "hfspeed_written"
"""The attribute of a module, and of all in it, that attend so."""
EAGER: Final = "eager"
"""What transformers calls an author's own attention."""
DISTANCE: Final = "distance"
"""The kind of what is no mask, but the distances of tokens from one another."""
INTERNAL: Final = "_attn_implementation_internal"
"""By which a configuration that chooses an attention is known."""


def seen(query: torch.Tensor, key: torch.Tensor, window: int | None, chunk: int | None) -> torch.Tensor:
    """Whether queries at some positions see keys at others; both are broadcast, and the answer is boolean."""
    found = key <= query
    if window is not None:
        found = found & (query - key < window)
    if chunk is not None:
        found = found & (query // chunk == key // chunk)
    return found


@dataclass(frozen=True)
class Mask:
    """What a module takes as the argument ``name``.

    It is a causal mask, with a ``window`` or a ``chunk`` of some size if that is its kind; or, of the kind
    ``distance``, the distance of each token from each.
    """

    name: str
    kind: str = ""
    size: int = 0

    def __str__(self) -> str:
        return ":".join(str(one) for one in (self.name, self.kind, self.size) if one)

    def made(self, tokens: int, batch: int, like: torch.Tensor) -> torch.Tensor:
        """The mask as transformers makes it for eager attention: ``[batch, 1, tokens, tokens]``, added to scores.

        Distances are ``[tokens, tokens]``, integers.
        """
        at = torch.arange(tokens, device=like.device)
        if self.kind == DISTANCE:
            return at[:, None] - at[None]
        window, chunk = (self.size if self.kind == kind else None for kind in ("window", "chunk"))
        shown = seen(at[:, None], at[None], window, chunk)
        least = torch.finfo(like.dtype).min
        mask = torch.zeros(tokens, tokens, dtype=like.dtype, device=like.device).masked_fill(~shown, least)
        return mask.expand(batch, 1, tokens, tokens)


def mask_of(text: str) -> Mask:
    """The mask that a plan says: ``"attention_mask"``, ``"attention_mask:window:32"``, ``"relative:distance"``.

    Raises:
        PlanError: it says something else.
    """
    match text.split(":"):
        case [name]:
            return Mask(name)
        case [name, kind] if kind == DISTANCE:
            return Mask(name, DISTANCE)
        case [name, "window" | "chunk" as kind, size] if size.isdigit():
            return Mask(name, kind, int(size))
    raise PlanError(f"{text!r} is no mask: expected `name`, `name:window:N`, `name:chunk:N` or `name:{DISTANCE}`")


@dataclass(frozen=True)
class Written:
    """How a module is called that attends as written.

    Attributes:
        masks: what is made for it, because its caller has none.
        inputs: the tensors that it is called with besides, as `History` says them.
        gives: its results, likewise.
        counts: numbers of tokens at which it begins to choose among them.
    """

    masks: tuple[Mask, ...]
    inputs: tuple[str, ...]
    gives: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()

    @property
    def at(self) -> tuple[int, int]:
        """Which of its tensors, and which dimension of it, counts the tokens.

        Raises:
            PlanError: none does.
        """
        for number, told in enumerate(self.inputs):
            if "_" not in told and "T" in told:
                return number, told.split("x").index("T")
        raise PlanError(f"none of {list(self.inputs)} counts tokens")


class Masked:
    """The forward of a module: masks that its caller left out are made for as many tokens as there are."""

    def __init__(self, module: nn.Module, how: Written) -> None:
        self.module, self.how = module, how
        self.names = list(inspect.signature(type(module).forward).parameters)[1:]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the author's forward."""
        number, dim = self.how.at
        tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        like, own = tensors[number], list(args)
        for mask in self.how.masks:
            place = self.names.index(mask.name)
            given = own[place] if place < len(own) else kwargs.get(mask.name)
            if given is not None and (mask.kind != DISTANCE or given.shape[-2] != given.shape[-1]):
                continue  # its author's own, or of one token behind a cache
            made = mask.made(like.shape[dim], like.shape[0] if dim else 1, like)
            if place < len(own):
                own[place] = made
            else:
                kwargs[mask.name] = made
        return type(self.module).forward(self.module, *own, **kwargs)


def write(module: nn.Module, how: Written, configs: dict[int, Any] | None = None) -> None:
    """Let a module attend as its author wrote it, whatever the model around it asks for; safe to repeat.

    Args:
        module: changed in place, with all in it.
        how: it is called.
        configs: copies of configurations, by the ``id`` of what they were made of, to be shared by several modules.
    """
    if getattr(module, WRITTEN, False):
        return
    known = {} if configs is None else configs
    for one in module.modules():
        setattr(one, WRITTEN, True)
        for name, value in list(vars(one).items()):
            if hasattr(value, INTERNAL):
                if id(value) not in known:
                    known[id(value)] = copy.deepcopy(value)
                    known[id(value)]._attn_implementation = EAGER
                setattr(one, name, known[id(value)])
    if how.masks:
        vars(module)["forward"] = Masked(module, how)


def write_all(modules: Mapping[str, Written], *models: nn.Module) -> None:
    """Let modules of models, by path, attend as written."""
    for model in models:
        configs: dict[int, Any] = {}
        for path, how in modules.items():
            write(model.get_submodule(path), how, configs)


def written_of(masks: Sequence[str], inputs: Sequence[str]) -> Written:
    """What a plan says of such a module: its masks, and what it is called with."""
    return Written(tuple(map(mask_of, masks)), tuple(inputs))
