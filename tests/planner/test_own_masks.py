"""Masks that an author's own code makes and hands to the attention interface: by value they are causal, or not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention, Plan
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load

FOLDER = Path(__file__).parents[1] / "hub" / "interface_without_a_flag"
CALL = """        mask = create_causal_mask(
            config=self.config, inputs_embeds=inputs_embeds, attention_mask=attention_mask,
            past_key_values=past_key_values, position_ids=position_ids,
        )  # fmt: skip
"""
OWN = """        mask = self.mask_of(inputs_embeds, past_key_values)
"""
METHOD = """
    def mask_of(self, x, past_key_values):
        if self.config._attn_implementation == "sdpa" and past_key_values is None:
            return None
        seen = past_key_values.get_seq_length() if past_key_values is not None else 0
        rows = torch.arange(seen, seen + x.shape[1], device=x.device)[:, None]
        keys = torch.arange(seen + x.shape[1], device=x.device)[None]
        ahead = keys > rows
        return torch.zeros_like(ahead, dtype=x.dtype).masked_fill(ahead, torch.finfo(x.dtype).min)[None, None]

    def get_input_embeddings(self):
"""


def planned(folder: Path, *changes: tuple[str, str]) -> Plan:
    torch.set_num_threads(1)
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "modeling_moraine.py"
    text = file.read_text()
    flag = "        self.num_key_value_groups = self.groups = "  # transformers' own attention asks for it
    own = (("        self.groups = ", flag), (CALL, OWN), ("\n    def get_input_embeddings(self):\n", METHOD))
    for old, new in (*own, *changes):
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return decide(load(str(folder), trust_remote_code=True))


@pytest.mark.parametrize("otherwise", ['== "sdpa" and', '!= "eager" and', "is None and"])
def test_a_mask_of_the_authors_own_is_causal(tmp_path: Path, otherwise: str) -> None:
    plan = planned(tmp_path / "own", ('== "sdpa" and', otherwise))
    found = [op for op in plan.ops if isinstance(op, Attention)]
    assert found
    assert all(op.window is None and op.split for op in found)
    assert all(proof.error <= proof.bound for proof in plan.proofs)


ALWAYS = ('if self.config._attn_implementation == "sdpa" and past_key_values is None', "if x is None")


def test_a_window_of_the_authors_own_is_a_window(tmp_path: Path) -> None:
    plan = planned(tmp_path / "window", ALWAYS, ("keys > rows", "(keys > rows) | (keys <= rows - 5)"))
    assert {op.window for op in plan.ops if isinstance(op, Attention)} == {5}


def test_a_mask_that_sees_ahead_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as no:
        planned(tmp_path / "ahead", ALWAYS, ("keys > rows", "keys > rows + 1"))
    assert no.value.refusals[0].place is not None


def test_a_mask_of_stripes_is_never_taken_for_a_window(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as no:
        planned(tmp_path / "stripes", ALWAYS, ("keys > rows", "(keys > rows) | ((rows - keys) % 2 == 1)"))
    assert no.value.refusals[0].place is not None
