"""Mixtures in shapes of their own: fused where they are understood, else as written, or refused at a line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hfspeed.emit import emitted
from hfspeed.errors import RefusedError
from hfspeed.plan import Experts, Keep, Plan, Whole
from hfspeed.planner.decide import decide, small_plan
from hfspeed.planner.load import Subject
from hfspeed.planner.prove import prove
from hfspeed.refusal import Reason

sys.path.insert(0, str(Path(__file__).parent))
import fresh_mixtures
import mixtures


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def subject(model_class: type[Any]) -> Subject:
    return Subject(model_class.__name__, None, mixtures.MixedConfig(), model_class, Path(fresh_mixtures.__file__))


def below(plan: Plan, path: str) -> dict[str, Any]:
    inside = (op for op in plan.ops if f"{op.path}.".startswith(f"{path}."))
    return {op.path.removeprefix(f"{path}."): op for op in inside}


def test_a_dict_of_experts_runs_as_written() -> None:
    plan = decide(subject(fresh_mixtures.KeyedForCausalLM))
    (kept,) = below(plan, "trunk.tower.1.feed").values()
    assert isinstance(kept, Keep)
    assert kept.gives == ("1xTx48", "Tx2_int64")
    assert any(r.reason is Reason.EXPERTS_AS_WRITTEN and r.place and "fresh" in r.place.file for r in plan.refusals)


def test_experts_of_the_block_itself_stay_and_its_router_is_a_linear() -> None:
    plan = decide(subject(fresh_mixtures.InlineForCausalLM))
    found = below(plan, "trunk.tower.1.feed")
    wanted = Whole("trunk.tower.1.feed.route_linear", 48, 6, False, matrix="route", turned=True)
    assert found.pop("route_linear") == wanted
    assert found.keys() == {"lift", "lift_offset", "fall"}
    (forward,) = [one for one in plan.forwards if one.base == "Inline"]
    assert "self.route_linear(rows)" in forward.text
    assert any(w.source.endswith("feed.route") and w.transposed for w in plan.weights)


def test_a_factor_for_each_expert_is_not_lost() -> None:
    plan = decide(subject(fresh_mixtures.LoudForCausalLM))
    assert below(plan, "trunk.tower.1.feed.pool").keys() == {"trunk.tower.1.feed.pool"}
    told = [r for r in plan.refusals if r.module == "trunk.tower.1.feed.pool"]
    assert "not one up and one down" in told[0].found


@pytest.mark.parametrize("model_class", [fresh_mixtures.LeaningForCausalLM, fresh_mixtures.ChoosingForCausalLM])
def test_what_hangs_on_other_calls_or_tokens_is_refused_at_a_line(model_class: type[Any]) -> None:
    with pytest.raises(RefusedError) as caught:
        decide(subject(model_class))
    assert any(r.place is not None and r.place.file.endswith("fresh_mixtures.py") for r in caught.value.refusals)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_uneven_experts_and_a_shared_one_over_ranks(ranks: int) -> None:
    """Six experts on four ranks: two of them have one more."""
    plan, small = small_plan(subject(mixtures.BiasedForCausalLM), ranks=2)
    assert next(op for op in plan.ops if isinstance(op, Experts)).count == 6
    prove(plan, small.fresh, emitted(plan), ranks=(ranks,), stages=(1,), spread=True)


def test_token_table_and_output_projection_are_left_alone() -> None:
    plan = decide(subject(fresh_mixtures.EndedForCausalLM))
    assert {"trunk.symbols", "speak"} <= {op.path for op in plan.ops if isinstance(op, Keep)}
    assert not any(isinstance(op, Whole) and op.matrix for op in plan.ops)
