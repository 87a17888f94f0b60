"""Numbers made of other tokens' ids are found wherever they join the stream, whatever ids a proof's prompts have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.plan import Keep
from hfspeed.planner.decide import decide
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
from mutants import mutant

TABLE = "        stream = self.table(input_ids) if inputs_embeds is None else inputs_embeds\n"
POSITIONS = "        if position_ids is None:\n"

OTHERS = {
    "how often it came before": "stream + torch.tril(input_ids[:, :, None] == input_ids[:, None]).sum(-1)[..., None]",
    "whether it is the one before it": "stream * (1 + F.pad(input_ids[:, 1:] == input_ids[:, :-1], (1, 0))[..., None])",
    "whose turn it is": "stream + self.table((input_ids == 90).cumsum(-1) % 2)",
    "whether one was seen": "stream * (1.0 + ((input_ids == 91).cumsum(-1) > 0)[..., None])",
    "the row's largest": "stream * (1.0 + (input_ids.max() == 95).to(stream.dtype))",
    "the one before it": "stream + self.table(torch.roll(input_ids * (input_ids == 93), 1, 1))",
}  # fmt: skip
OWN = {
    "a hash of it": "stream + self.table((input_ids * 2654435761) % 89)",
    "whether it is special": "stream * (1.0 + (input_ids == 90)[..., None])",
    "its kind": "stream + self.table(torch.where(input_ids > 90, 1, 2))",
    "one hot": "stream + F.one_hot(input_ids % 32, 32).to(stream.dtype)",
    "some of many": "stream * (1.0 + torch.isin(input_ids, torch.tensor([3, 90]))[..., None])",
}


@pytest.mark.parametrize("how", OTHERS)
def test_refused(tmp_path: Path, how: str) -> None:
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, (TABLE, f"{TABLE}        stream = {OTHERS[how]}\n")))
    no = told.value.refusals[0]
    assert no.place is not None
    assert "stream = " in Path(no.place.file).read_text("utf-8").splitlines()[no.place.line - 1]
    assert "other tokens' ids" in no.found or no.reason in {Reason.VALUE_VARIES, Reason.NUMBERS_DIFFER}


def test_positions_that_begin_again_behind_a_separator(tmp_path: Path) -> None:
    again = (
        "        at = torch.arange(input_ids.shape[1])\n"
        "        position_ids = position_ids - (at * (input_ids == 90)).cummax(1).values\n"
    )
    made = "        mask = create_causal_mask(\n"
    with pytest.raises(RefusedError) as told:
        decide(mutant(tmp_path, (made, again + made)))
    assert told.value.refusals[0].place is not None


@pytest.mark.parametrize("how", OWN)
def test_served(tmp_path: Path, how: str) -> None:
    decide(mutant(tmp_path, (TABLE, f"{TABLE}        stream = {OWN[how]}\n")))


def test_a_table_that_shortens_its_rows_stays_as_it_is(tmp_path: Path) -> None:
    made = "nn.Embedding(config.vocab_size, config.width)"
    plan = decide(mutant(tmp_path, (made, f"{made[:-1]}, max_norm=0.1)")))
    assert Keep("decoder.table") in plan.ops
