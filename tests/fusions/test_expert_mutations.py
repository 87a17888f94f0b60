"""A plan that drops, adds or turns anything of the experts is off, and the proof says so."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.pattern.expert_form import expert_form
from hfspeed.plan import Experts, Plan, Wrapper
from hfspeed.planner.build import randomise
from hfspeed.planner.destinations import destinations
from hfspeed.planner.prove import Mismatch, prove_module

sys.path.insert(0, str(Path(__file__).parent.parent / "pattern"))
import expert_modules as modules


class Root(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, **given: torch.Tensor) -> torch.Tensor:
        return self.block(**given)


def proved(cls: type[nn.Module], names: tuple[str, ...], ranks: tuple[int, ...], **changes: Any) -> Experts:
    """Prove the module, or one whose plan says something else."""
    root = Root(cls()).double()
    randomise(root, seed=5)
    source = torch.Generator().manual_seed(1)
    tokens = torch.randn((6, 16), generator=source, dtype=torch.float64) * 40  # so that clamps act
    ids = torch.stack([torch.randperm(4, generator=source)[:2] for _ in range(6)])
    weights = torch.rand((6, 2), generator=source, dtype=torch.float64) + 0.1
    call = record(root, dict(zip(names, (tokens, ids, weights), strict=True)), keep_values=True).calls["block"]
    op = replace(expert_form(root.block, "block", names, 16, 2), **changes)
    filled, ties = destinations(root, (op,))
    plan = Plan("Root", __name__, 16, (op,), filled, ties, (), Wrapper("block", (), ""), None, True)
    prove_module(plan, root, "block", call.args, call.kwargs, ranks=ranks)
    return op


NAMES = ("x", "ids", "weights")
APART = ("tokens", "chosen", "share")


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (modules.Packed, NAMES),
        (modules.Clamped, NAMES),
        (modules.Swapped, NAMES),
        (modules.Woven, NAMES),
        (modules.Apart, APART),
        (modules.WeighsInput, NAMES),
    ],
)
def test_right_on_one_rank_and_on_several(cls: type[nn.Module], names: tuple[str, ...]) -> None:
    proved(cls, names, (1, 2, 4))


@pytest.mark.parametrize(
    ("cls", "names", "changes"),
    [
        (modules.Packed, NAMES, {"act": "gelu"}),
        (modules.Packed, NAMES, {"swapped": True}),
        (modules.Packed, NAMES, {"interleaved": True}),
        (modules.Packed, NAMES, {"limit": 1.0}),
        (modules.Packed, NAMES, {"beta": 1.0}),
        (modules.Packed, NAMES, {"alpha": 1.702}),
        (modules.Packed, NAMES, {"weighs_input": True}),
        (modules.Woven, NAMES, {"limit": None}),
        (modules.Woven, NAMES, {"alpha": 1.0}),
        (modules.Woven, NAMES, {"beta": 0.0}),
        (modules.Woven, NAMES, {"interleaved": False}),
        (modules.Apart, APART, {"up_bias": ()}),
        (modules.Apart, APART, {"down_bias": None}),
        (modules.Apart, APART, {"up": ("a", "b")}),
        (modules.WeighsInput, NAMES, {"weighs_input": False}),
        (modules.WeighsInput, NAMES, {"act": "relu"}),
    ],
)
def test_one_change_is_caught(cls: type[nn.Module], names: tuple[str, ...], changes: dict[str, Any]) -> None:
    with pytest.raises(Mismatch):
        proved(cls, names, (1,), **changes)
