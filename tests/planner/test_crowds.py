"""Experts that answer a token otherwise among many are refused, whatever they decide by; others are served."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.graph.call import Call, closed
from hfspeed.planner.crowds import crowds
from hfspeed.planner.study import TOKENS
from hfspeed.refusal import Reason


class Chosen(nn.Module):
    """Two of six experts for each token, after ``limit`` has had its say."""

    def __init__(self, limit: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router = nn.Linear(16, 6, bias=False).double()
        self.experts = nn.ModuleList(nn.Linear(16, 16, bias=False).double() for _ in range(6))
        self.limit = limit

    def forward(self, hidden: torch.Tensor, *, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        flat = hidden.reshape(-1, hidden.shape[-1])
        scores, out = self.router(flat), torch.zeros_like(flat)
        scores = self.limit(scores) if self.limit else scores
        top = scores.topk(2).indices
        weights = scores.gather(1, top).softmax(-1) * scale
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(top == number)
            out.index_add_(0, rows, expert(flat[rows]) * weights[rows, slot, None])
        return out.view_as(hidden), scores


def _crowded(scores: torch.Tensor) -> torch.Tensor:
    load = scores.softmax(-1).mean(0)
    return scores - 0.5 * (load > 0.35) * load


def _full(scores: torch.Tensor) -> torch.Tensor:
    """No more than 24 tokens get their first expert."""
    first = nn.functional.one_hot(scores.argmax(-1), scores.shape[-1])
    return scores.masked_fill((first.cumsum(0) > 24) & first.bool(), -1e9)


def _long(scores: torch.Tensor) -> torch.Tensor:
    return scores * (1 if scores.shape[0] <= 64 else 2)


def told(limit: Any) -> Any:
    module = Chosen(limit)
    graph = torch.fx.Graph()
    graph.call_function(closed)
    hidden = torch.randn(1, TOKENS, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    call = Call("mlp", module, (hidden,), {"scale": 0.5}, graph)
    assert call.closed
    root = nn.ModuleDict({"mlp": module})
    return crowds(SimpleNamespace(model=root, recording=SimpleNamespace(calls={"mlp": call})))  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [_crowded, _full, _long])
def test_refused(limit: Any) -> None:
    (refusal,) = told(limit)
    assert refusal.reason is Reason.VALUE_VARIES
    assert refusal.module == "mlp"
    assert "answers a token otherwise among many" in refusal.found
    assert refusal.help


def test_served() -> None:
    assert told(None) == ()
