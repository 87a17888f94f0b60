"""A module that runs as one operation gets its arguments as they were: tensors, alone or together, and values."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hfspeed.errors import PlanError
from hfspeed.vllm import outside
from hfspeed.vllm.outside import Outside


def test_arguments_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def forward(*args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append((args, kwargs))
        return torch.zeros(1, 3, 4)

    run = Outside(forward, ("1xTx4",), "one", 1)
    called = SimpleNamespace(outside=lambda given, said, _: run.run(given, said))
    monkeypatch.setattr(outside.torch.ops, "hfspeed", called, raising=False)
    flow, cos, sin, at = torch.randn(1, 3, 4), torch.randn(1, 3, 2), torch.randn(1, 3, 2), torch.arange(3)
    given = {"angles": {"main": (cos, sin), "far": at}, "pair": (cos, sin), "flag": True, "none": None, "scale": 0.5}
    assert run(flow, 2, **given).shape == (1, 3, 4)
    ((first, second), kwargs) = seen[0]
    assert first is flow
    assert second == 2
    assert list(kwargs) == list(given)
    assert kwargs["angles"]["main"][1] is sin
    assert kwargs["angles"]["far"] is at
    assert kwargs["pair"][0] is cos
    assert (kwargs["flag"], kwargs["none"], kwargs["scale"]) == (True, None, 0.5)
    with pytest.raises(PlanError, match="no operation takes"):
        run(flow, object())


def test_shapes_of_what_was_chosen() -> None:
    run = Outside(lambda: None, ("1xTx4", "none", "1xTx~16_int32"), "other", 1)
    flow, chosen = run.shapes([torch.zeros(1, 5, 8)])
    assert (flow.shape, chosen.shape, chosen.dtype) == ((1, 5, 4), (1, 5, 16), torch.int32)
