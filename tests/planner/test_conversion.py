"""Experts stored one by one become what transformers makes of them; what is missing is told."""

from __future__ import annotations

import re

import pytest
import torch
from transformers.core_model_loading import revert_weight_conversion

from hfspeed.errors import CheckpointError
from hfspeed.planner.build import build, randomise
from hfspeed.planner.conversion import Conversion
from hfspeed.planner.load import load
from hfspeed.planner.shrink import shrink


def stored(family: str) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], Conversion]:
    """What a family's small model has, the same as it is saved, and how to read that."""
    subject = load(family)
    model = build(subject.model_class, shrink(subject.config, subject.model_class, layers=1), device="cpu")
    randomise(model)
    state = dict(model.state_dict())
    return state, revert_weight_conversion(model, dict(state)), Conversion(model)


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "phimoe", "hrm_text", "llama"])
@pytest.mark.parametrize("backwards", [False, True])
def test_together_again(family: str, backwards: bool) -> None:
    state, saved, conversion = stored(family)
    names = sorted(saved, reverse=backwards)
    made = dict(conversion.assembled((name, saved[name]) for name in names))
    converted = [name for name in made if name not in saved]
    assert (family == "llama") == (not converted)
    for name in converted:
        assert torch.equal(made[name], state[name]), name


def test_parts_are_let_go_layer_by_layer() -> None:
    _, saved, conversion = stored("qwen3_moe")
    names = sorted(saved, key=lambda name: (not re.search(r"experts\.\d+\.(gate|up)_proj", name), name))
    seen = []

    def weights() -> object:
        for name in names:
            seen.append(name)
            yield name, saved[name]

    first, _ = next(conversion.assembled(weights()))  # type: ignore[arg-type]
    assert first.endswith("experts.gate_up_proj")
    assert all("gate_proj" in name or "up_proj" in name for name in seen)


def test_a_missing_expert_is_told() -> None:
    _, saved, conversion = stored("mixtral")
    lost = next(name for name in saved if re.search(r"experts\.1\.w3", name))
    del saved[lost]
    with pytest.raises(CheckpointError, match="not all on disk"):
        list(conversion.assembled(saved.items()))


def test_an_expert_of_another_width_is_told() -> None:
    _, saved, conversion = stored("mixtral")
    wide = next(name for name in saved if re.search(r"experts\.1\.w3", name))
    saved[wide] = torch.cat([saved[wide], saved[wide]], 1)
    with pytest.raises(CheckpointError, match=r"cannot be made of|not all on disk"):
        list(conversion.assembled(saved.items()))
