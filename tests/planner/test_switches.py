"""Fusions switched off by name: in the plan, in the plan's key, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from hfspeed.errors import UsageError
from hfspeed.fusions import FUSIONS, REPLACEMENTS
from hfspeed.plan import Attention, Gated, Heads, Norm, Stacked
from hfspeed.planner.cache import key_for
from hfspeed.planner.serve import planned
from hfspeed.planner.switches import VARIABLE, active, switched_off


@pytest.fixture
def subject() -> Any:
    from pathlib import Path

    from hfspeed.planner.load import Subject

    config = LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=250,
    )  # fmt: skip
    return Subject("small", None, config, LlamaForCausalLM, Path("small.py"))


def test_everything_is_on_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert active() == (FUSIONS, REPLACEMENTS)
    monkeypatch.setenv(VARIABLE, " , ")
    assert switched_off() == ()


def test_none_leaves_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "none")
    fusions, replacements = active()
    assert fusions == ()
    assert [entry.name for entry in replacements] == ["attention"]


def test_single_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "-gated, -heads,-rms_norm,-gated")
    assert switched_off() == ("gated", "heads", "rms_norm")
    fusions, replacements = active()
    assert {"gated", "heads"}.isdisjoint(entry.name for entry in fusions)
    assert len(fusions) == len(FUSIONS) - 2
    assert len(replacements) == len(REPLACEMENTS) - 1


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("-gatd", "did you mean `-gated`"),
        ("nonee", "`none`"),
        ("-zzzzzz", "Known: bare, experts, gated"),
        ("gated", "write `-gated`"),
        ("-attention", "cannot be switched off"),
        ("none,-gated", "no fusion `none`"),
    ],
)
def test_wrong_words(monkeypatch: pytest.MonkeyPatch, told: str, says: str) -> None:
    monkeypatch.setenv(VARIABLE, told)
    with pytest.raises(UsageError, match=VARIABLE) as error:
        switched_off()
    assert says in str(error.value)


def test_the_plan_and_its_key_follow(monkeypatch: pytest.MonkeyPatch, subject: Any) -> None:
    def kinds() -> set[type]:
        return {type(op) for op in planned(subject)[0].ops}

    monkeypatch.delenv(VARIABLE, raising=False)
    keys = [key_for(subject)]
    assert {Gated, Heads, Norm, Attention} <= kinds()
    monkeypatch.setenv(VARIABLE, "-gated")
    keys.append(key_for(subject))
    assert Gated not in kinds()
    assert Stacked in kinds(), "what a fusion leaves, a later one takes"
    monkeypatch.setenv(VARIABLE, "none")
    keys.append(key_for(subject))
    assert kinds().isdisjoint({Gated, Heads, Stacked, Norm})
    assert Attention in kinds()
    assert len(set(keys)) == 3
