"""What a module keeps beside the tree is found in whatever holds it, and what is in the tree is not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.errors import RefusedError
from hfspeed.vllm import stale


def _closure(module: nn.Module) -> Callable[[Any], Any]:
    return lambda x: module(x)


HOLDS: dict[str, Callable[[nn.Linear], Any]] = {
    "a list": lambda one: [one],
    "a dictionary of tuples": lambda one: {"first": (one,)},
    "a function's default": lambda one: lambda x, m=one: m(x),
    "a closure": _closure,
    "a partial": lambda one: functools.partial(one, torch.ones(3)),
    "a method": lambda one: one.forward,
    "a parameter alone": lambda one: [one.weight],
}


@pytest.mark.parametrize("what", HOLDS)
def test_what_was_exchanged_is_refused(what: str) -> None:
    root = nn.Sequential(nn.Linear(3, 3), nn.Identity())
    root[1].kept = HOLDS[what](root[0])
    stale.check("Some", root)
    root[0] = nn.Linear(3, 3)
    with pytest.raises(RefusedError, match="`kept` keeps a module or parameter beside the tree") as no:
        stale.check("Some", root)
    assert no.value.refusals[0].module == "1"


def test_modules_without_weights_may_be_kept_anywhere() -> None:
    root = nn.Sequential(nn.Linear(3, 3))
    root[0].kept = [nn.SiLU(), len, functools.partial(torch.sum, dim=1), "words"]
    stale.check("Some", root)
