"""Angles that change with the longest sequence: served for sequences that never reach the change, and said so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hfspeed.plan import Plan, Positions
from hfspeed.plan.text import render
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject, load

HUB = Path(__file__).parents[1] / "hub"
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "pad_token_id": 0,
}


def plan(architecture: str, **values: Any) -> Plan:
    torch.set_num_threads(1)
    cls = getattr(transformers, architecture)
    return decide(Subject(architecture, None, cls.config_class(**SIZES, **values), cls, None))  # type: ignore[arg-type]


def test_a_base_that_grows_with_the_longest_sequence() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    found = plan("LlamaForCausalLM", max_position_embeddings=256, rope_parameters=rope)
    assert found.wrapper.limit == 256
    assert "--max-model-len 256 or less" in render(found)


def test_factors_for_short_sequences_and_for_long_ones() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 128}
    rope |= {"short_factor": [1.0] * 8, "long_factor": [1.0 + n for n in range(8)]}
    found = plan(
        "Phi3ForCausalLM", max_position_embeddings=512, original_max_position_embeddings=128, rope_parameters=rope
    )
    assert found.wrapper.limit == 128


@pytest.mark.parametrize(("kind", "limit"), [("linear", 0), ("dynamic", 256)])
def test_a_table_that_is_asked_for_as_many_rows_as_there_are_tokens(tmp_path: Path, kind: str, limit: int) -> None:
    """In a row of several sequences that number says nothing, so the table is whole."""
    torch.set_num_threads(1)
    folder = tmp_path / kind
    shutil.copytree(HUB / "cache_of_its_own", folder, ignore=shutil.ignore_patterns("__pycache__"))
    values = json.loads((folder / "config.json").read_text())
    values["rope_scaling"]["type"] = kind
    (folder / "config.json").write_text(json.dumps(values))
    tables = [op for op in decide(load(str(folder), trust_remote_code=True)).ops if isinstance(op, Positions)]
    assert tables
    assert all(op.counted and op.limit == limit for op in tables)
