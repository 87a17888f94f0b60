"""Modules that are run on zeros are run again where somebody wants to see what their code makes."""

from __future__ import annotations

import torch
from torch import nn

from hfspeed.graph.hollow import anew, on_meta
from hfspeed.planner.largest import Largest


class Squares(nn.Module):
    """Makes a matrix of all tokens by all tokens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[tokens, 2]`` to the same."""
        return (x @ x.T).softmax(-1) @ x


def made(tokens: int) -> int:
    with Largest() as seen, anew():
        on_meta(Squares(), (torch.zeros(tokens, 2, device="meta"),), {})
    return seen.elements


def test_what_a_module_makes_is_seen_each_time() -> None:
    assert made(19) == 19 * 19
    assert made(19) == 19 * 19


def test_what_was_known_is_known_again() -> None:
    given = (torch.zeros(23, 2, device="meta"),)
    on_meta(Squares(), given, {})
    with anew():
        pass
    with Largest() as seen:
        on_meta(Squares(), given, {})
    assert seen.elements == 0


def test_a_module_that_is_there_twice() -> None:
    """Its twin has two of it, each under a name of its own."""
    twice = nn.Linear(2, 2, device="meta")
    out = on_meta(nn.Sequential(twice, nn.Sequential(twice)), (torch.zeros(29, 2, device="meta"),), {})
    assert out.shape == (29, 2)
