"""Token ids that notice each other: what a token is given must not hang on which ids came before it in the row.

Proofs put sequences behind one another and continue them one token at a time, but with ids of their choice; a
separator, a repeated word or a counter of them may not be among these. So a prompt is followed through the code:
wherever numbers made of ids meet the stream, each must have been made of its own token's id alone.
"""

from __future__ import annotations

import copy
import linecache
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from hfspeed.emit import emitted
from hfspeed.errors import PlanError
from hfspeed.graph.positions import author_of, place_at
from hfspeed.graph.tensors import copied, tensors
from hfspeed.plan import Experts, Plan
from hfspeed.planner.import_file import AUTHOR_ERRORS
from hfspeed.planner.mismatch import arithmetic
from hfspeed.planner.prompts import prompt
from hfspeed.planner.study import TOKENS, Study
from hfspeed.reference.asking import ids_name
from hfspeed.reference.build import build
from hfspeed.reference.run import hidden
from hfspeed.refusal import Place, Reason, Refusal

OWN, OTHERS = 1, 2
"""What numbers were made of: the id of their own token, or of other tokens too."""
TRIED = (0, TOKENS // 2, TOKENS - 1)
"""Tokens whose number is changed, to see whether only its own result changes."""
_SHAPES = ("new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like", "full_like")


class _Followed(TorchFunctionMode):
    """Follows numbers made of token ids, up to where they meet others."""

    def __init__(self, ids: torch.Tensor) -> None:
        super().__init__()
        self.made = {id(ids): OWN}
        self.kept = [ids]
        self.place: Place | None = None
        self.inside = 0
        self.entered: set[str] = set()

    def aside(self, path: str, module: nn.Module) -> None:
        """Do not follow what a module does inside: it is another's kernel that is served in its place."""

        def enter(*_: Any) -> None:
            self.entered.add(path)
            self.inside += 1

        def leave(*_: Any) -> None:
            self.inside -= 1

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        given = list(tensors((args, kwargs)))
        level = max((self.made.get(id(one), 0) for one in given), default=0)
        wanted = level if level != OWN else self._level(func, args, kwargs)
        out = func(*args, **kwargs)
        if not level or getattr(func, "__name__", "") in _SHAPES:
            return out
        results = list(tensors(out)) or [one for one in given[:1] if func is torch.Tensor.__setitem__]
        joined = any(one.is_floating_point() and id(one) not in self.made for one in given)
        for one in results:
            if not (joined and one.is_floating_point()):
                self.made[id(one)] = max(wanted, self.made.get(id(one), 0))
                self.kept.append(one)
            elif wanted == OTHERS and self.place is None and (frame := author_of(sys._getframe(1))):
                self.place = place_at(frame)
        return out

    def _level(self, func: Any, args: Any, kwargs: Any) -> int:
        """Whether one operation on numbers of the tokens' own gives each token's result from its own number."""
        try:
            plain = [one for one in tensors(func(*copied(args), **copied(kwargs))) if one.numel()]
            if any(tuple(one.shape).count(TOKENS) != 1 for one in plain):
                return OTHERS
            for token in TRIED:
                changed = func(*self._changed(args, token), **self._changed(kwargs, token))
                for one, other in zip(plain, tensors(changed), strict=False):
                    axis = tuple(one.shape).index(TOKENS)
                    rest = torch.arange(TOKENS) != token
                    if not torch.equal(one.movedim(axis, 0)[rest], other.movedim(axis, 0)[rest]):
                        return OTHERS
        except AUTHOR_ERRORS:
            return OWN
        return OWN

    def _changed(self, value: Any, token: int) -> Any:
        """The same arguments, with another number for one token in whatever is made of ids."""
        if isinstance(value, torch.Tensor):
            if not self.made.get(id(value)) or TOKENS not in value.shape:
                return copied(value)
            other = copied(value)
            row = other.movedim(tuple(value.shape).index(TOKENS), 0)
            row[token] = ~row[token] if value.dtype is torch.bool else row[token] + 1
            return other
        if isinstance(value, list | tuple):
            return type(value)(self._changed(one, token) for one in value)
        return {key: self._changed(one, token) for key, one in value.items()} if isinstance(value, dict) else value


def noticed(small: Study, plan: Plan) -> Refusal | None:
    """A refusal if anything that is made of other tokens' ids joins what the model computes for a token.

    Experts may be chosen by ids. How tokens are handed to them and put back is a kernel's, where ``plan`` says so.
    """
    experts = [op.path for op in plan.ops if isinstance(op, Experts)]
    given, model = prompt(small.fresh, TOKENS), copy.deepcopy(small.fresh)
    followed = _Followed(given[ids_name(model)])
    for path in experts:
        followed.aside(path, model.get_submodule(path))
    with torch.no_grad(), arithmetic(torch.float64), followed:
        try:
            model(**given)
        except AUTHOR_ERRORS:
            return None  # it says so where it is asked in the usual way
    if (place := followed.place) is None:
        return None
    if not followed.entered.issuperset(experts) and _joined_by_a_kernel(small, plan, experts, given[ids_name(model)]):
        return None
    line = linecache.getline(place.file, place.line).strip()
    found = f"`{line}` gives a token what was made of other tokens' ids"
    help_ = "make it of a token's own id, or keep it in a module with a state: sequences share a row"
    return Refusal("model", Reason.NUMBERS_DIFFER, found, type(small.model).__name__, place, help=help_)


def _joined_by_a_kernel(small: Study, plan: Plan, experts: Sequence[str], ids: torch.Tensor) -> bool:
    """Whether the model that is served joins nothing made of other tokens' ids, unlike its author's.

    Experts may be a list that the author's code goes through, instead of a module that is called: then the loop is
    the author's only, and what is served calls a kernel.
    """
    with torch.no_grad(), arithmetic(torch.float64):
        try:
            built = build(plan, small.fresh, emitted(plan) if plan.forwards else None)
            followed = _Followed(ids)
            for path in experts:
                followed.aside(path, built.get_submodule(path))
            with followed:
                hidden(plan, built, ids, torch.arange(TOKENS)[None])
        except (*AUTHOR_ERRORS, PlanError):
            return False
    return followed.place is None and followed.entered.issuperset(experts)
