"""A block without autocast is one on meta too, but only while a run is recorded."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hfspeed.graph.record import record


class Unscaled(nn.Module):
    """As rotary embeddings do: a block without autocast, on whichever device the input is."""

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        with torch.autocast(device_type=x.device.type, enabled=False):
            return positions.float().cos()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Unscaled()

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        """Any shape to the same."""
        return self.inner(torch.empty(3, device="meta"), positions)  # type: ignore[no-any-return]


def test_a_block_without_autocast_runs_on_meta() -> None:
    positions = torch.empty(3, dtype=torch.long, device="meta")
    recording = record(Outer(), {"positions": positions}, values={positions: torch.arange(3)})
    *_, last, output = recording.calls["inner"].graph.nodes
    assert output.op == "output"
    assert torch.equal(last.meta["shadow"], torch.arange(3).float().cos())
    with pytest.raises(RuntimeError):
        torch.autocast(device_type="meta", enabled=False)  # outside of a recording it is torch's own
