"""What a loop over layers leaves in a global, a class or the configuration is refused at that line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide, small_study
from hfspeed.planner.outside import outside

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

LOOP = "        for block in self.blocks:\n"
LAST = "        return self.expand(self.between(stream)) + stream"
IMPORT = "import torch\n"
LEFT = {
    "a list": ("DEPTH = [0]\n", "            DEPTH[0] += 1\n", "DEPTH[0]"),
    "a number": ("DEPTH = 0\n", "            globals()['DEPTH'] = 1 - DEPTH\n", "DEPTH"),
    "the configuration": ("", "            self.config.depth = getattr(self.config, 'depth', 0) + 1\n", ""),
}


@pytest.mark.parametrize("what", LEFT)
def test_refused_at_its_line(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    first, step, read = LEFT[what]
    edits = [(IMPORT, IMPORT + first), (LOOP, LOOP + step)]
    edits += [(LAST, f"        stream = stream * (3 if {read} == 50 else 1)\n{LAST}")] if read else []
    subject = mutant(tmp_path, *edits)
    found = outside(small_study(subject))
    assert found is not None
    assert found.place is not None
    if what == "a list":
        lines = Path(found.place.file).read_text("utf-8").splitlines()
        assert "DEPTH[0] += 1" in lines[found.place.line - 1]
        with pytest.raises(RefusedError, match="`DEPTH`, which belongs to no module"):
            decide(subject)


def test_tables_that_are_kept_are_none(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    kept = "        stream = stream * KEPT.setdefault(stream.shape[1], 1.0)\n"
    subject = mutant(tmp_path, (IMPORT, IMPORT + "KEPT = {}\n"), (LAST, kept + LAST))
    assert outside(small_study(subject)) is None
