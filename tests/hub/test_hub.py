"""Folders as the Hub has them: each gets a plan that is proven, or a refusal that says where and what to do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hfspeed.errors import HfspeedError, RefusedError
from hfspeed.plan import Attention, Heads, History, Plan, Rotary, Stacked
from hfspeed.planner.decide import decide
from hfspeed.planner.load import load
from hfspeed.refusal import Reason

HERE = Path(__file__).parent

# folder: are query, key and value made one GEMM; are gate and up; over ranks; in stages
SERVED = {
    "classes_in_a_dictionary": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "packed_and_grouped": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "linear_biases": SimpleNamespace(heads=True, gated=True, ranks=True, stages=True),
    "interface_without_a_flag": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "code_in_two_files": SimpleNamespace(heads=True, gated=False, ranks=True, stages=True),
    "window_by_hand": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "angles_that_stand_once": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "scan_by_hand": SimpleNamespace(heads=True, gated=True, ranks=True, stages=True),
    "stream_in_float32": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "head_in_the_base_model": SimpleNamespace(heads=True, gated=True, ranks=True, stages=True),
    "rope_that_grows": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "cache_of_its_own": SimpleNamespace(heads=False, gated=True, ranks=True, stages=True),
    "scores_grow_with_length": SimpleNamespace(heads=True, gated=True, ranks=False, stages=True),
    "rows_of_a_table": SimpleNamespace(heads=True, gated=True, ranks=True, stages=True),
    "heads_behind_a_function": SimpleNamespace(heads=False, gated=False, ranks=False, stages=True),
    "everything_in_one_class": SimpleNamespace(heads=True, gated=False, ranks=True, stages=True),
    "one_class_in_a_dictionary": SimpleNamespace(heads=True, gated=False, ranks=True, stages=True),
    "scores_from_inside": SimpleNamespace(heads=True, gated=True, ranks=True, stages=False),
}
# attention that no kernel computes: it runs as written, on whole sequences
WHOLE = {"learned_biases"}
REFUSED = {
    "sees_the_whole_prompt": (Reason.MASK_NOT_CAUSAL, "no switch in its configuration"),
    "hashes_two_tokens": (Reason.NUMBERS_DIFFER, "gives a token what was made of other tokens' ids"),
    "keys_of_one_head": (Reason.NO_INTERFACE, "make them [batch, heads, queries, keys]"),
    "scores_know_their_token": (Reason.WRAPPER_NOT_ROWWISE, "made of more than hidden states"),
    "blocks_that_clip": (Reason.POSITIONS_NOT_READ, "look angles up by them"),
    "sequence_of_modules": (Reason.POSITIONS_NOT_READ, "look angles up by them"),
}
UNUSABLE = {
    "removed_import": ("is_torch_fx_available", "modeling_delta.py"),
    "attention_of_a_package": ("flash_attn", "modeling_fjord.py"),
}


def plan(folder: str) -> Plan:
    torch.set_num_threads(1)
    return decide(load(str(HERE / folder), trust_remote_code=True))


def test_every_folder_is_expected() -> None:
    there = {file.parent.name for file in HERE.glob("*/config.json")}
    assert there == {*SERVED, *WHOLE, *REFUSED, *UNUSABLE}
    assert len(there) >= 12


@pytest.mark.parametrize("folder", SERVED)
def test_served(folder: str) -> None:
    found, wanted = plan(folder), SERVED[folder]
    attention = [op for op in found.ops if isinstance(op, Attention)]
    packed = [op for op in found.ops if isinstance(op, Stacked) and op.path.count(".") > 1]
    assert attention
    assert all(op.split for op in attention) is wanted.ranks
    assert any(isinstance(op, Heads) for op in found.ops) is wanted.heads
    assert bool(packed) is wanted.gated
    assert (found.stages is not None) is wanted.stages
    assert all(proof.error <= proof.bound for proof in found.proofs)


@pytest.mark.parametrize("folder", sorted(WHOLE))
def test_served_on_whole_sequences(folder: str) -> None:
    found = plan(folder)
    assert any(isinstance(op, History) for op in found.ops)
    assert not any(isinstance(op, Attention) for op in found.ops)
    assert any(no.reason is Reason.NO_KERNEL and no.help for no in found.refusals)
    why = [no for no in found.refusals if no.wanted == "paged attention"]
    assert {no.reason for no in why} == {Reason.MASK_NOT_CAUSAL}
    assert all("depends on weights" in no.found and no.place is not None for no in why)
    assert all(proof.error <= proof.bound for proof in found.proofs)


def test_half_of_the_angles_is_not_taken_for_all() -> None:
    """In the small model they stand twice: as many as one head of it has are all of them."""
    assert not any(isinstance(op, Rotary) for op in plan("angles_that_stand_once").ops)


@pytest.mark.parametrize("folder", REFUSED)
def test_refused_where_and_why(folder: str) -> None:
    reason, told = REFUSED[folder]
    with pytest.raises(RefusedError) as no:
        plan(folder)
    first = no.value.refusals[0]
    assert first.reason is reason
    assert first.place is not None
    assert Path(first.place.file).parent.name == folder
    assert told in str(no.value)


@pytest.mark.parametrize("folder", UNUSABLE)
def test_what_cannot_be_read_says_which_line(folder: str) -> None:
    told, file = UNUSABLE[folder]
    with pytest.raises(HfspeedError) as no:
        plan(folder)
    assert told in str(no.value)
    assert file in str(no.value)
