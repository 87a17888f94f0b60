"""What one token sees of another only where values are rare is found with louder values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide, small_plan
from hfspeed.planner.loud import loud

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LAST = "        return self.expand(self.between(stream)) + stream"
RARE = "        stream = stream * torch.where({} > {}, 0.5, 1.0)\n" + LAST
LOOKS = {
    "the last token": "stream[:, -1:, :1]",
    "the one before": "F.pad(stream, (0, 0, 1, -1))[..., :1]",
    "the largest of all": "stream.amax((1, 2), keepdim=True)",
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("above", [2.5, 9.0, 40.0])
def test_a_rare_value_is_found(look: str, above: float, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with pytest.raises(RefusedError) as refused:
        decide(mutant(tmp_path, (LAST, RARE.format(LOOKS[look], above))))
    assert {no.reason.name for no in refused.value.refusals} <= {"VALUE_VARIES", "CALLED_TWICE", "CANNOT_RUN"}


def test_what_looks_at_itself_is_served(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    plan, small = small_plan(mutant(tmp_path, (LAST, RARE.format("stream[..., :1]", 2.5))))
    assert loud(small, plan) == ()
