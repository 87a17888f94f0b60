"""Mixtures of experts: found by what they do, the author's choice kept, and what no kernel has kept as written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hfspeed.plan import Column, Experts, Keep, Plan, Stacked, Weight, Whole, laws, text
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject, load
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
import listed
import mixtures


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def planned(model_class: type[Any]) -> Plan:
    config = mixtures.MixedConfig()
    return decide(Subject(model_class.__name__, None, config, model_class, Path(mixtures.__file__)))


def test_a_loop_over_a_list_becomes_one_call() -> None:
    plan = planned(mixtures.ListedForCausalLM)
    found = next(op for op in plan.ops if isinstance(op, Experts))
    assert (found.path, found.up, found.down) == ("trunk.tower.1.feed.crew", ("w1.weight", "w3.weight"), "w2.weight")
    (forward,) = [forward for forward in plan.forwards if forward.base == "ListOfMembers"]
    assert "final = final + self.crew(rows, picked, share)" in forward.text
    assert "for " not in forward.text
    assert len([w for w in plan.weights if w.target == "trunk.tower.1.feed.crew.w1.weight"]) == 6
    laws.verify(plan, ranks=2, proven=True)


def test_a_mask_is_no_longer_made() -> None:
    plan = planned(listed.ByMaskForCausalLM)
    (forward,) = [forward for forward in plan.forwards if forward.base == "ByMask"]
    assert "self.experts(flow, chosen, share)" in forward.text
    assert "one_hot" not in forward.text
    assert "nonzero" not in forward.text
    laws.verify(plan, ranks=2, proven=True)


def test_a_method_that_sorts_tokens_is_no_longer_called() -> None:
    plan = planned(listed.SortedForCausalLM)
    (forward,) = [forward for forward in plan.forwards if forward.base == "Sorted"]
    assert "self.experts(flow.flatten(0, -2), chosen, share).reshape(flow.shape)" in forward.text
    assert any(isinstance(op, Experts) and op.apart for op in plan.ops)
    assert any(isinstance(op, Keep) and op.path.endswith("feed.gate") for op in plan.ops)


def test_a_loop_that_does_more_stays_as_written() -> None:
    plan = planned(listed.TwiceForCausalLM)
    kept = {op.path: op for op in plan.ops if isinstance(op, Keep) and op.gives}
    assert list(kept) == ["trunk.tower.1.feed", "trunk.tower.2.feed"]
    assert kept["trunk.tower.1.feed"].gives == ("1xTx48", "Tx6")
    assert not any(op.path.startswith("trunk.tower.1.feed.") for op in plan.ops)
    told = [r for r in plan.refusals if r.reason is Reason.EXPERTS_AS_WRITTEN]
    assert {r.module for r in told} == set(kept)
    assert "outside of compiled graphs" in told[0].found
    assert any(r.reason is Reason.NUMBERS_DIFFER for r in plan.refusals)
    assert plan.tensor  # all the rest goes over the ranks
    assert any(isinstance(op, Stacked) and op.path.startswith("trunk.tower.0.feed") for op in plan.ops)


def test_an_undecorated_class_of_experts_is_found_and_its_router_kept() -> None:
    plan = planned(mixtures.BiasedForCausalLM)
    found = next(op for op in plan.ops if isinstance(op, Experts))
    assert found.path == "trunk.tower.1.feed.pool"
    assert found.takes == ("rows", "picked", "share")
    assert (found.up, found.up_bias) == (("lift",), ("lift_offset",))
    assert (found.down, found.down_bias) == ("fall", "fall_offset")
    assert (found.act, found.limit, found.swapped, found.turned) == ("gelu_tanh", 0.2, True, True)
    # nothing of the router is dropped: its matrix, and the bias that is on the block
    kept = {op.path for op in plan.ops if isinstance(op, Keep)}
    assert "trunk.tower.1.feed.correction_bias" in kept
    (switch,) = [op for op in plan.ops if isinstance(op, Whole) and op.path.startswith("trunk.tower.1.feed.switch")]
    assert (switch.matrix, switch.inputs, switch.outputs, switch.wide) == ("switch", 48, 6, True)
    assert Weight("trunk.tower.1.feed.switch", f"{switch.path}.weight") in plan.weights
    assert any(proof.claim == "experts at trunk.tower.*.feed.pool" for proof in plan.proofs)
    laws.verify(plan, ranks=2, proven=True)


@pytest.mark.parametrize("model_class", [mixtures.ListedForCausalLM, mixtures.BiasedForCausalLM])
def test_the_text_says_it_all(model_class: type[Any]) -> None:
    plan = planned(model_class)
    assert text.parse(text.render(plan)) == tuple(sorted(plan.ops, key=text.order))


@pytest.mark.parametrize("family", ["qwen3_moe", "gpt_oss"])
def test_a_family_at_full_size(family: str) -> None:
    plan = decide(load(family))
    found = [op for op in plan.ops if isinstance(op, Experts)]
    assert len(found) == plan.stages.count
    wanted = {"qwen3_moe": (128, 2048, 768, None, 1.0, 0.0, False), "gpt_oss": (128, 2880, 2880, 7.0, 1.702, 1.0, True)}
    one = found[0]
    assert (one.count, one.inputs, one.inner, one.limit, one.alpha, one.beta, bool(one.up_bias)) == wanted[family]
    assert not any(isinstance(op, Column) and ".experts" in op.path for op in plan.ops)
    laws.verify(plan, ranks=4, proven=True)
