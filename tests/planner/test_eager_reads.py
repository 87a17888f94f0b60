"""What only an author's eager attention knows, by a buffer, a number of its module or far on, is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hfspeed.planner.decide import small_study
from hfspeed.planner.eager_reads import only_eager_knows

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

MIXED = '    return torch.einsum("bhqk,bhkd->bqhd", probabilities, value), probabilities'
WEIGHTS = "    probabilities = scores.softmax"
INIT = "        self.layer_idx = layer_idx\n"
GAP = "(torch.arange(key.shape[2])[:, None] - torch.arange(key.shape[2]))[-query.shape[2]:]"
RUN = "        run = ALL_ATTENTION_FUNCTIONS"
KNOWN: dict[str, list[tuple[str, str]]] = {
    "a buffer of ones": [
        (INIT, INIT + "        self.register_buffer('gain', torch.ones(config.heads))\n"),
        (MIXED, MIXED.replace("probabilities, value)", "probabilities * module.gain[:, None, None], value)")),
    ],
    "a layer that the small model has not": [
        (WEIGHTS, "    scores = scores * (2.0 if module.layer_idx == 29 else 1.0)\n" + WEIGHTS)
    ],
    "a number of the module": [
        (INIT, INIT + "        self.window = 4096\n"),
        (WEIGHTS, f"    scores = scores.masked_fill({GAP} >= module.window, -1e30)\n" + WEIGHTS),
    ],
    "how many keys there are": [(WEIGHTS, "    scores = scores.tanh() if key.shape[2] > 700 else scores\n" + WEIGHTS)],
    "a buffer that is a window": [
        (INIT, INIT + "        self.register_buffer('window', torch.tensor(4096))\n"),
        (WEIGHTS, f"    scores = scores.masked_fill({GAP} >= module.window, -1e30)\n" + WEIGHTS),
    ],
    "a distance": [(WEIGHTS, f"    scores = scores - 0.1 * ({GAP} - 400).clamp(min=0)\n" + WEIGHTS)],
}


@pytest.mark.parametrize("what", KNOWN)
def test_found(what: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    found = only_eager_knows(small_study(mutant(tmp_path, *KNOWN[what])))
    assert found is not None
    assert found.place is not None


def test_what_the_forward_reads_too_is_told(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    told = [
        (INIT, INIT + "        self.gain = 2\n        self.register_buffer('bend', torch.ones(config.head_dim))\n"),
        (RUN, "        query = query * self.gain * self.bend\n" + RUN),
    ]
    assert only_eager_knows(small_study(mutant(tmp_path, *told))) is None


@pytest.fixture
def another_default() -> Iterator[None]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    usual = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def bent(*args: Any, **more: Any) -> Any:
        mixed, weights = usual(*args, **more)
        return mixed * 1.5, weights

    ALL_ATTENTION_FUNCTIONS.register("sdpa", bent)
    yield
    ALL_ATTENTION_FUNCTIONS.register("sdpa", usual)


@pytest.mark.usefixtures("another_default")
def test_another_attention_under_the_usual_name(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    found = only_eager_knows(small_study(mutant(tmp_path)))
    assert found is not None
    assert "`sdpa`" in found.found
