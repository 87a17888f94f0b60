"""Attention by hand in whole models: windows that only long prompts show, biases, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hfspeed.errors import RefusedError
from hfspeed.plan import Attention
from hfspeed.planner.decide import decide
from hfspeed.planner.draft import draft
from hfspeed.planner.load import Subject, load
from hfspeed.planner.study import study
from hfspeed.planner.verdicts import Verdicts
from hfspeed.refusal import Reason

HUB = Path(__file__).parents[1] / "hub"


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def model(architecture: str, **values: Any) -> tuple[type[Any], Any]:
    cls = getattr(transformers, architecture)
    return cls, cls.config_class(**values)


def attentions(cls: type[Any], config: Any) -> list[Attention]:
    plan, _ = draft(study(cls, config, real=False), Verdicts())
    assert not [refusal for refusal in plan.refusals if refusal.wanted == "attention"]
    return [op for op in plan.ops if isinstance(op, Attention)]


def test_a_window_longer_than_the_recorded_prompt_is_seen() -> None:
    values = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 200}
    found = attentions(*model("GPTNeoForCausalLM", **values, hidden_size=64, num_heads=4))
    assert [op.window for op in found] == [None, 200]
    assert all(op.measured and op.scale == 1.0 for op in found)


def test_slopes_are_those_of_the_author_for_any_number_of_heads() -> None:
    (first, _) = attentions(*model("BloomForCausalLM", hidden_size=96, n_head=12, n_layer=2))
    assert first.alibi is not None
    wanted = [2.0 ** -(n + 1) for n in range(8)] + [2.0 ** -(n + 0.5) for n in range(4)]
    assert first.alibi == pytest.approx(wanted, rel=1e-6)


def test_repeated_heads_are_kept_once() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 8, "num_kv_heads": 2, "num_hidden_layers": 2}
    (first, _) = attentions(*model("FalconForCausalLM", **sizes, new_decoder_architecture=True))
    assert (first.heads, first.kv_heads) == (8, 2)


def refusals(architecture: str, **values: Any) -> tuple[Any, ...]:
    cls, config = model(architecture, **values)
    with pytest.raises(RefusedError) as no:
        decide(Subject(architecture, None, config, cls, None))  # type: ignore[arg-type]
    return no.value.refusals


@pytest.mark.parametrize(("window", "limit"), [(24, 0), (9000, 4096)])
def test_masks_too_long_to_be_looked_at(tmp_path: Path, window: int, limit: int) -> None:
    """They are what shorter ones are, if no number in them says otherwise; else no longer sequences are served."""
    folder = shutil.copytree(HUB / "window_by_hand", tmp_path / "hand", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / "modeling_canyon.py"
    file.write_text(file.read_text().replace("else 24", f"else {window}"))
    values = json.loads((folder / "config.json").read_text()) | {"max_position_embeddings": 32768}
    (folder / "config.json").write_text(json.dumps(values))
    plan = decide(load(str(folder), trust_remote_code=True))
    assert plan.wrapper.limit == limit
    wanted = [window, None, window] if window < 4096 else [None] * 3
    assert [op.window for op in plan.ops if isinstance(op, Attention)] == wanted


def test_biases_that_are_rounded_over_long_distances_are_refused() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    first, *_ = refusals("FalconForCausalLM", **sizes, alibi=True, multi_query=False, parallel_attn=False)
    assert first.reason is Reason.MASK_NOT_CAUSAL
    assert "not linear in the distance" in first.found


def test_attention_over_more_than_the_prompt_is_refused_at_its_softmax() -> None:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "dim_head": 16, "dim_ff": 96, "num_hidden_layers": 2}
    first, *_ = refusals("CpmAntForCausalLM", **sizes)
    assert first.reason is Reason.NO_INTERFACE
    assert first.place is not None
    assert "tokens where the prompt has" in first.found


def test_linear_biases_need_no_positions() -> None:
    """The base model takes none; that this is right is what packed prompts prove."""
    cls, config = model("BloomForCausalLM", hidden_size=64, n_head=4, n_layer=2)
    plan = decide(Subject("linear biases", None, config, cls, None))  # type: ignore[arg-type]
    assert "position_ids" not in plan.wrapper.keywords
    assert not plan.wrapper.interface
