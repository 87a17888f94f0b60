"""Numbers by which a mask changes further away than prompts are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hfspeed.graph.record import record
from hfspeed.pattern.afar import afar

TOKENS, SEEN = 9, 4096
FORWARD = """
import numpy as np
import torch
from torch import nn


class Attends(nn.Module):
    def forward(self, x, ids):
        n = x.shape[1]
        far = torch.arange(n, device=x.device)[:, None] - torch.arange(n, device=x.device)[None]
        mask = {mask}
        scores = x @ x.transpose(1, 2)
        return scores.masked_fill(~mask, -1e9).softmax(-1) @ {value}
"""
NEAR = {
    "a triangle": "torch.ones(n, n, device=x.device).tril().bool()",
    "distances": "far >= 0",
    "a short window": "(far >= 0) & (far < 100)",
    "filled": "torch.full((n, n), -1e9, device=x.device).triu(1) > -1",
}
FAR = {
    "distances": "(far >= 0) & (far < 8192)",
    "two triangles": "torch.ones(n, n, device=x.device).tril().triu(-8191).bool()",
    "blocks": "(far >= 0) & (torch.arange(n, device=x.device) // 8192 == 0)",
    "another library": "torch.from_numpy(np.tril(np.ones((n, n), dtype=bool), 0)).to(x.device)",
    "a list": "torch.tensor([[j <= i < j + 8192 for j in range(n)] for i in range(n)]).to(x.device)",
}


def found(folder: Path, mask: str, value: str = "x") -> torch.fx.Node | None:
    names: dict[str, type[nn.Module]] = {}
    file = folder / "attends.py"
    file.write_text(FORWARD.format(mask=mask, value=value))
    exec(compile(file.read_text(), str(file), "exec"), names)
    ids = torch.empty(1, TOKENS, dtype=torch.long, device="meta")
    given = {"x": torch.empty(1, TOKENS, 8, device="meta"), "ids": ids}
    recording = record(names["Attends"](), given, values={ids: torch.arange(TOKENS)[None]})
    return afar(recording, TOKENS, SEEN, 1 << 15)


@pytest.mark.parametrize("mask", NEAR)
def test_a_mask_of_near_numbers_is_the_same_further_on(tmp_path: Path, mask: str) -> None:
    assert found(tmp_path, NEAR[mask]) is None


@pytest.mark.parametrize("mask", FAR)
def test_a_number_that_no_prompt_reaches_is_seen(tmp_path: Path, mask: str) -> None:
    assert found(tmp_path, FAR[mask]) is not None


def test_keys_that_are_cut_far_away_are_seen(tmp_path: Path) -> None:
    assert found(tmp_path, "far >= 0", "x[:, -8192:]") is not None
