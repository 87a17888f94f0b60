"""Constructors that only ask for memory, or for memory on the CPU, and leave the values to a checkpoint."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

from hfspeed.plan import Attention, Gated, Heads
from hfspeed.planner.build import build, randomise
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

QUERY = "self.wq = nn.Linear("
GATE = "self.w1 = nn.Linear("


def test_layers_that_skip_their_initialisation(tmp_path: Path) -> None:
    skipped = [(one, one.replace("nn.Linear(", "torch.nn.utils.skip_init(nn.Linear, ")) for one in (QUERY, GATE)]
    subject = mutant(tmp_path, *skipped)
    model = build(subject.model_class, subject.config)
    assert all(one.is_meta for one in model.parameters())
    kinds = [type(op) for op in decide(subject).ops]
    assert [kinds.count(kind) for kind in (Attention, Heads, Gated)] == [2, 2, 2]


def test_tied_parameters_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.utils.skip_init(nn.Linear, 4, 4, bias=False)
            self.other = nn.Linear(4, 4, bias=False)
            self.other.weight = self.one.weight

    from hfspeed.planner.build import _bring_to_meta

    with torch.device("meta"):
        model = Tied()
    assert not model.one.weight.is_meta
    _bring_to_meta(model)
    assert model.one.weight is model.other.weight
    assert model.one.weight.is_meta


def test_memory_that_nobody_set_is_no_value() -> None:
    module = nn.Module()
    wild = torch.tensor([float("nan"), float("inf"), -1e38, 3e4, 1.0, 0.0, -2.0])
    module.scale = nn.Parameter(wild.clone())
    randomise(module)
    assert bool((module.scale - torch.tensor([0.0, 0, 0, 0, 1, 0, -2])).abs().max() < 1)
