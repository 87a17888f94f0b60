"""What `@experts` says of a block is checked by where the results of its children go."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.hints.experts import experts
from hfspeed.plan import Experts, Keep
from hfspeed.planner.hinted import false_hints
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent.parent / "pattern"))
from expert_modules import Packed


class Router(nn.Module):
    """Chooses two of four."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, ids = torch.topk((x @ self.weight.t()).softmax(-1), 2)
        return ids, weights


class Block(nn.Module):
    """A router, experts, one for all, and a scale that is applied before the experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.pool, self.common, self.before = Router(), Packed(), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        ids, weights = self.gate(x)
        return self.pool(x, ids, weights) + self.common(x)


class Plain(nn.Module):
    """No experts at all."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gate(x)


def lies(cls: type[nn.Module], ops: tuple[Any, ...], **names: str) -> list[str]:
    """What is told of a root whose only child, ``block``, is said to have these parts."""
    hinted = experts(**names)(type(cls.__name__, (cls,), {}))

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = hinted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x)

    root = Root().eval()
    recording = record(root, {"x": torch.randn(5, 16)})
    study: Any = SimpleNamespace(recording=recording)
    plan: Any = SimpleNamespace(ops=ops, refusals=())
    found = false_hints(study, plan)
    assert all(refusal.reason is Reason.FALSE_HINT for refusal in found)
    return [refusal.found for refusal in found]


FUSED = (Experts("block.pool", 4, 2, 16, 12, "silu", ("x", "ids", "weights"), ("gate_up",), "down"),)


def test_true() -> None:
    assert lies(Block, FUSED, router="gate", experts="pool", shared="common") == []
    assert lies(Block, FUSED) == []
    assert lies(Block, (Keep("block", gives=("Tx16",)),), router="gate", experts="pool") == []


@pytest.mark.parametrize(
    ("cls", "ops", "names", "told"),
    [
        (Block, FUSED, {"experts": "common"}, "`common` are no experts; those of `Block` are `pool`"),
        (Block, FUSED, {"router": "common"}, "`common` does not choose the experts"),
        (Block, FUSED, {"shared": "before"}, "`before` leads to the experts, so it is not beside them"),
        (Plain, (), {"router": "gate"}, "`Plain` sends no tokens to experts that are chosen for them"),
        (Block, FUSED, {"router": "gait"}, "`router` names `gait`, which is no child of `Block`"),
    ],
)
def test_false(cls: type[nn.Module], ops: tuple[Any, ...], names: dict[str, str], told: str) -> None:
    assert lies(cls, ops, **names) == [told]
