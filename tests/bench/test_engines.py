"""Two arms with real engines, on a tiny model that is only a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hfspeed.bench.arms import chosen
from hfspeed.bench.measures import ROUND
from hfspeed.bench.result import Result
from hfspeed.bench.run import Bench
from hfspeed.bench.subject import settled
from hfspeed.bench.weights import write

CONFIG: dict[str, Any] = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 250,
    "max_position_embeddings": 256, "dtype": "float32",
}  # fmt: skip


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("weights", [True, False])
def test_two_arms(tmp_path: Path, weights: bool) -> None:
    pytest.importorskip("vllm")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    if weights:
        write(folder)
    load = {"prompts": 3, "input_len": 12, "output_len": 5}
    done = settled(str(folder), tmp_path, load, {"enforce_eager": True}, rounds=2, arms=2, restart=False)
    result = Result("tiny", "", {}, {}, comparable=done.comparable)
    arms = chosen("hfspeed,unfused" if weights else "native,hfspeed")
    Bench(done.job, arms, tmp_path / "runs", result, environ=done.environ, tell=lambda step: None).run()
    one, other = result.records
    assert [one.error, other.error] == ["", ""], one.log + other.log
    for record in result.records:
        assert len(record.rounds) == 2
        assert {measure.key for measure in ROUND} == set(record.rounds[0])
        assert all(value > 0 for rates in record.rounds for value in rates.values())
        assert record.once["cache"] > 0
        assert record.once["peak"] > 0.1
        assert [len(tokens) for tokens in record.tokens[0]] == [5, 5, 5]
        assert weights or record.tokens == [[[token] * 5 for token in done.job.written(number)] for number in (1, 2)]
        assert len(list((tmp_path / "runs" / record.name).iterdir())) > 1, "it has caches of its own"
    if weights:
        assert one.tokens == other.tokens, "in float32 a fusion changes no token"
        assert {"Heads", "Gated"} <= set(one.raw["served"][0]["ops"])
        assert not {"Heads", "Gated", "Stacked", "Norm"} & set(other.raw["served"][0]["ops"])
