"""Numbers made of other tokens' ids are found wherever they join the stream, whatever ids a proof's prompts have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hfspeed.errors import RefusedError
from hfspeed.plan import Experts, Keep, Plan
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load
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


LOOPED = """        flat, ids = stream.reshape(-1, stream.shape[-1]), ids.reshape(-1)
        picked = torch.stack((ids % 4, (ids // 4) % 4), 1)
        shares = torch.full(picked.shape, 0.5)
        mixed = torch.zeros_like(flat)
        for number, expert in enumerate(self.many):
            token, slot = torch.where(picked == number)
            mixed.index_add_(0, token, expert(flat[token]) * shares[token, slot, None])
        return mixed.reshape(stream.shape)
"""
HASHED = [
    ("class Expand(nn.Module):", "class Gated(nn.Module):"),
    ("class Block(nn.Module):", f'''class Expand(nn.Module):
    """Experts by token ids."""

    def __init__(self, config):
        super().__init__()
        self.many = nn.ModuleList(Gated(config) for _ in range(4))

    def forward(self, stream, ids):
{LOOPED}

class Block(nn.Module):'''),
    ("self.expand(self.between(stream)) + stream", "self.expand(self.between(stream), ids) + stream"),
    ("stream = self.mixer(", "ids = kwargs.pop('ids')\n        stream = self.mixer("),
    ("mask=mask, memory=past_key_values, **kwargs)", "mask=mask, memory=past_key_values, ids=input_ids, **kwargs)"),
]  # fmt: skip


def hashed(folder: Path, *more: tuple[str, str]) -> Plan:
    """The example with experts that are chosen by hashes of token ids, in a loop over a list."""
    mutant(folder)
    file = folder / "modeling_plain.py"
    code = file.read_text("utf-8")
    for old, new in (*HASHED, *more):
        assert code.count(old) == 1, f"{code.count(old)} times: {old}"
        code = code.replace(old, new)
    file.write_text(code, encoding="utf-8")
    return decide(load(str(folder), trust_remote_code=True))


def test_experts_that_are_chosen_by_ids_in_a_loop(tmp_path: Path) -> None:
    assert any(isinstance(op, Experts) for op in hashed(tmp_path).ops)


def test_experts_that_are_chosen_by_the_id_before(tmp_path: Path) -> None:
    before = ("picked = torch.stack((ids % 4,", "picked = torch.stack(((torch.roll(ids, 1) == 90) + ids % 3,")
    with pytest.raises(RefusedError) as told:
        hashed(tmp_path, before)
    assert told.value.refusals[0].place is not None


def test_a_table_that_shortens_its_rows_stays_as_it_is(tmp_path: Path) -> None:
    made = "nn.Embedding(config.vocab_size, config.width)"
    plan = decide(mutant(tmp_path, (made, f"{made[:-1]}, max_norm=0.1)")))
    assert Keep("decoder.table") in plan.ops
