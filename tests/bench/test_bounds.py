"""What the machine allows: what a model needs by arithmetic, and what is told of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fakes import result
from test_report import SPEEDS, shown

from hfspeed.bench.bounds import Bounds, limits
from hfspeed.bench.table import notes

DENSE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 250,
}  # fmt: skip
LAYER = 64 * 128 + 2 * 64 * 64 + 128 * 64 + 3 * 64 * 96
NORMS, HEAD = 5 * 64, 250 * 64


@pytest.mark.parametrize("tied", [False, True])
def test_a_dense_model_reads_its_weights_once_a_step(tmp_path: Path, tied: bool) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE | {"tie_word_embeddings": tied}))
    said = Bounds().work(str(tmp_path), prompts=16, input_len=10, dtype="bfloat16")
    assert said["read"] == pytest.approx(2 * (2 * LAYER + NORMS + HEAD), rel=0.01), "the table of tokens is looked up"
    assert said["multiply"] == pytest.approx(2 * (2 * LAYER + HEAD / 10), rel=0.02), "the head is for last tokens only"


def test_experts_that_no_token_chose_are_not_read(tmp_path: Path) -> None:
    config = DENSE | {
        "model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
        "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    experts = 2 * 8 * 3 * 64 * 96
    one, many = (Bounds().work(str(tmp_path), prompts=p, input_len=10, dtype="float32") for p in (1, 1000))
    assert many["read"] - one["read"] == pytest.approx(4 * experts * 6 / 8, rel=0.001)
    assert one["multiply"] == many["multiply"]


def test_a_model_that_is_refused_has_no_bounds_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}')
    said = Bounds().work(str(tmp_path), prompts=1, input_len=1)
    assert set(said) == {"unknown"}
    one = result(SPEEDS)
    one.bounds = {"needs": said}
    assert limits(one.bounds, 4) == {}
    assert any(said["unknown"] in note for note in notes(one))
    assert "allows" not in shown(one)


def test_arms_are_shown_beside_what_the_machine_allows() -> None:
    one = result(SPEEDS)
    one.job = {"prompts": 2}
    speeds = [{"read": 1e10, "multiply": 4e12}, {"read": 3e10, "multiply": 4e12}]
    one.bounds = {"needs": {"read": 2e8, "multiply": 2e9}, "speeds": speeds}
    assert {measure.key: limit for measure, limit in one.limits().items()} == {"prefill": 2000, "decode": 200}
    row = next(line for line in shown(one).splitlines() if line.strip().startswith("decode of what"))
    assert re.findall(r"\d+%", row) == ["55%", "58%", "44%", "51%"]
    assert one.as_data()["bounds"]["rates"]["prefill"] == 2000


def test_the_machine_is_measured() -> None:
    said = Bounds().measure()
    assert 1e8 < said["read"] < 1e14
    assert 1e8 < said["multiply"] < 1e17
