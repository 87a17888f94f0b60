"""A branch on which tokens were given is refused at its line; one that only warns is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LOOP = "        for block in self.blocks:\n"
LATER = "            stream = stream * 1.5\n"

BRANCHES = {
    "any": f"        if (input_ids == 90).any():\n{LATER}",
    "in": f"        if 90 in input_ids[:, [0, -1]]:\n{LATER}",
    "a number": "        stream = stream * (2.0 if (input_ids == 90).sum() > 0 else 1.0)\n",
    "a count": "        stream = stream * (1 + int((input_ids == 90).sum()))\n",
    "a list": f"        if 90 in input_ids[0].tolist():\n{LATER}",
    "one by one": f"        if any(token == 90 for token in input_ids[0]):\n{LATER}",
    "all": f"        if not torch.equal(input_ids, input_ids.clamp(max=89)):\n{LATER}",
}


@pytest.mark.parametrize("how", BRANCHES)
def test_refused_at_the_line(how: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with pytest.raises(RefusedError) as no:
        decide(mutant(tmp_path, (LOOP, BRANCHES[how] + LOOP)))
    first = no.value.refusals[0]
    assert first.reason is Reason.VALUE_VARIES
    assert "which tokens" in first.found
    assert first.place is not None
    line = Path(first.place.file).read_text("utf-8").split("\n")[first.place.line - 1]
    assert line.strip() == BRANCHES[how].split("\n")[0].strip()


def test_a_warning_is_no_decision(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    warning = "        if 0 in input_ids[:, [0, -1]]:\n            print('there may be padding')\n"
    assert decide(mutant(tmp_path, (LOOP, warning + LOOP))).proofs
