"""Tokens that meet farther apart than in a short prompt, or from some position on, are found by a long one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide, small_plan
from hfspeed.planner.largest import Largest
from hfspeed.planner.long_run import long_run

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LAST = "        return self.expand(self.between(stream)) + stream"
VALUE = "        key = self.wk(stream).reshape"
FAR: dict[str, list[tuple[str, str]]] = {
    "a lag in a layer": [(LAST, "        stream = stream + F.pad(stream, (0, 0, 150, -150))\n" + LAST)],
    "values of long ago": [
        (VALUE, "        value = value + 0.5 * F.pad(value, (0, 0, 200, 0))[:, :, : value.shape[2]]\n" + VALUE)
    ],
    "neighbours from a position on": [
        (LAST, "        late = positions[..., None] >= 220\n"
               "        stream = stream + late * F.pad(stream, (0, 0, 1, 0))[:, : stream.shape[1]]\n" + LAST)
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", FAR)
def test_refused(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with pytest.raises(RefusedError):
        decide(mutant(tmp_path, *FAR[what]))


def test_what_a_position_alone_decides_is_served(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    late = "        stream = stream * (1 + (positions[..., None] >= 220))\n"
    plan, small = small_plan(mutant(tmp_path, (LAST, late + LAST)))
    assert long_run(small, plan) is None


def test_only_tensors_with_values_are_large() -> None:
    with Largest() as made:
        torch.zeros(5, 1).expand(5, 1000) + torch.zeros(1, 7)[:, :1]
        torch.zeros(1 << 20, 1 << 20, device="meta").exp()
    assert made.elements == 5000
    assert 5000 < made.total < 5100
