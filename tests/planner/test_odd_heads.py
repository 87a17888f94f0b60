"""Where two ranks cannot share the heads, shares are tried on the fewest ranks that can."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hfspeed.cli.app import main
from hfspeed.plan import Attention
from hfspeed.planner.decide import small_plan
from hfspeed.planner.load import Subject


def config(heads: int, keys: int) -> dict[str, Any]:
    """A small Llama's."""
    sizes = {"hidden_size": 16 * heads, "head_dim": 16, "intermediate_size": 8 * heads * keys, "num_hidden_layers": 2}
    return sizes | {"num_attention_heads": heads, "num_key_value_heads": keys, "vocab_size": 128}


@pytest.mark.parametrize(("heads", "keys", "ranks"), [(9, 3, 3), (7, 1, 7), (14, 7, 7), (25, 25, 5), (8, 4, 4)])
def test_attention_of_the_small_model_is_split(heads: int, keys: int, ranks: int) -> None:
    torch.set_num_threads(1)
    made = LlamaConfig(**config(heads, keys))
    plan, _ = small_plan(Subject("odd", None, made, LlamaForCausalLM, None), ranks=ranks)
    attention = [op for op in plan.ops if isinstance(op, Attention)]
    assert plan.tensor
    assert all(op.split and op.heads % ranks == 0 for op in attention)


def test_verify_leaves_out_what_is_impossible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    told = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **config(9, 3)}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(tmp_path), "--tp", "1,2,3", "--pp", "1"])
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert "impossible: 2 ranks" in out
    assert "equal: float64, 3 ranks, 1 stage" in out
    assert "2 ranks, 1 stage" not in out.replace("impossible: 2 ranks", "")
