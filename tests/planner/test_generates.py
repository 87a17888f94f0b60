"""What an author's class does when it generates: inputs that it makes itself, and a way of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.planner.decide import decide

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

HEAD = "    def get_output_embeddings(self):\n"
PREPARES = """    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        inputs = super().prepare_inputs_for_generation(input_ids, **kwargs)
        inputs["position_ids"] = torch.arange(input_ids.shape[1], device=input_ids.device)[None]{by}
        return inputs

"""
GENERATES = """    def generate(self, input_ids, **kwargs):
        return input_ids

"""


@pytest.mark.parametrize("more", ["", '\n        inputs["logits_to_keep"] = 1'])
def test_other_positions_than_those_of_tokens_are_refused(tmp_path: Path, more: str) -> None:
    subject = mutant(tmp_path, (HEAD, PREPARES.format(by=" * 2" + more) + HEAD))
    with pytest.raises(RefusedError, match="gives the forward other inputs") as told:
        decide(subject)
    (refusal,) = told.value.refusals
    assert refusal.place is not None
    lines = Path(refusal.place.file).read_text("utf-8").splitlines()
    assert lines[refusal.place.line - 1].strip().startswith("def prepare_inputs_for_generation")


def test_the_same_positions_are_served(tmp_path: Path) -> None:
    found = decide(mutant(tmp_path, (HEAD, PREPARES.format(by="") + HEAD)))
    assert not any(no.wanted == "generate" for no in found.refusals)


def test_a_way_of_its_own_to_generate_is_told(tmp_path: Path) -> None:
    found = decide(mutant(tmp_path, (HEAD, GENERATES + HEAD)))
    (told,) = (no for no in found.refusals if no.wanted == "generate")
    assert told.place is not None
    assert "which vLLM does not call" in told.found
