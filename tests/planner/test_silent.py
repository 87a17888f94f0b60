"""Code that would be served otherwise than its author runs it, with nothing to show for it, is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

RESULT = "        return self.wo(mixed.reshape(batch, tokens, -1))"
SOFTMAX = "scores.softmax(-1, dtype=torch.float32)"
LOOP = "        for block in self.blocks:\n"
LAST = "        return self.expand(self.between(stream)) + stream"
KEEP = "        self.kept = stream[:, -1:].detach()\n"
COUNT = "        self.calls = getattr(self, 'calls', 0) + 1\n"
NORM = "        return (y * (1.0 + self.offset)).to(x.dtype)"
INIT = "        self.post_init()\n\n    def get_input_embeddings"
DISTANCE = "(position_ids[:, None, :, None] - torch.arange(mask.shape[-1])).clamp(min=0)"
TYPE = NORM.replace("y *", "y * (1.3 if x.dtype == torch.{} else 1.0) *", 1)

SILENT: dict[str, list[tuple[str, str]]] = {
    "a scale that only the eager function knows": [
        ("scaling=size**-0.5, **kwargs)", "scaling=None, **kwargs)"),
        ("query, key) * scaling", "query, key) * (scaling or 0.1)"),
    ],
    "a bias that only the mask has": [
        (LOOP, f"        if mask is not None:\n            mask = mask - 0.2 * {DISTANCE}\n{LOOP}")
    ],
    "a sink that only the eager function has": [(SOFTMAX, f"F.pad({SOFTMAX[:6]}, (1, 0)){SOFTMAX[6:]}[..., 1:]")],
    "a bias that only the eager function has": [
        ("    probabilities", "    scores = scores + 0.1 * torch.arange(key.shape[2])\n    probabilities")
    ],
    "a branch on the implementation": [
        (RESULT, '        mixed = mixed * (1.0 if self.config._attn_implementation == "eager" else 1.5)\n' + RESULT)
    ],
    "weights that are used if they are there": [
        ("mixed, _ = run(", "mixed, weights = run("),
        (RESULT, RESULT + " + (0 if weights is None else weights.mean((1, 3))[..., None])"),
    ],
    "a branch on float32": [(NORM, TYPE.format("float32"))],
    "a branch on bfloat16": [(NORM, TYPE.format("bfloat16"))],
    "a branch on a single token": [(LAST, "        stream = stream * (1 + 0.5 * (stream.shape[1] == 1))\n" + LAST)],
    "a state from step to step": [(LAST, "        stream = stream + getattr(self, 'kept', 0)\n" + KEEP + LAST)],
    "a count of calls": [(LAST, COUNT + "        stream = stream * (1 + self.calls % 2)\n" + LAST)],
}


@pytest.mark.parametrize("what", SILENT)
def test_refused(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    with pytest.raises(RefusedError):
        decide(mutant(tmp_path, *SILENT[what]))
