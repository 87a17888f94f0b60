"""Modules with states over ranks: which rows go where is read from the dataflow, and held against real numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Mamba2Config, Mamba2ForCausalLM, NemotronHConfig, NemotronHForCausalLM

from hfspeed.emit import emitted
from hfspeed.pattern.dependence import parsed
from hfspeed.plan import Column, Keep, Local, Op, Plan, Recurrence, Row, Share, Stacked
from hfspeed.planner.decide import decide, small_plan
from hfspeed.planner.load import Subject
from hfspeed.planner.mismatch import Mismatch
from hfspeed.planner.mixers import COST
from hfspeed.planner.prove import prove

sys.path.insert(0, str(Path(__file__).parent))
import stateful_models


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def subject(cls: type[Any], config: Any) -> Subject:
    return Subject(cls.__name__, None, config, cls, stateful_models.__file__)  # type: ignore[arg-type]


def tide(spelling: str) -> Subject:
    return subject(stateful_models.TideForCausalLM, stateful_models.TideConfig(spelling=spelling))


def mamba2(groups: int) -> Subject:
    config = Mamba2Config(
        hidden_size=32, num_heads=8, head_dim=8, state_size=4, n_groups=groups, num_hidden_layers=1, vocab_size=64
    )
    return subject(Mamba2ForCausalLM, config)


def at(plan: Plan, path: str) -> dict[str, Op]:
    """The ops below a module, by what is left of their paths; numbers and states by their names."""
    found: dict[str, Op] = {}
    for op in plan.ops:
        if op.path == path and isinstance(op, Local | Recurrence):
            found[op.attribute if isinstance(op, Local) else op.name] = op
        elif op.path.startswith(f"{path}."):
            found[op.path[len(path) + 1 :]] = op
    return found


def test_rows_that_blocks_need() -> None:
    def mask(*rows: str) -> torch.Tensor:
        return torch.tensor([[one == "x" for one in row] for row in rows])

    assert parsed(mask("xx..x", "..xxx")) == ((4, 2), (1, 1))
    assert parsed(mask("x..", ".x.", "..x")) == ((3, 3),)
    assert parsed(mask("xx..", "xx..", "..xx", "..xx")) == ((4, 2),)
    assert parsed(mask("x.", "x.")) is None  # a row that nobody needs
    assert parsed(mask("x.x", ".xx")) == ((2, 2), (1, 1))
    assert parsed(mask(".x", "x.")) is None  # another order
    assert parsed(mask("xx.", "..x")) is None  # unequal blocks


def test_it_is_read_from_the_dataflow() -> None:
    """Query, key and value lie one behind the other, and so do both gates."""
    ops = at(decide(tide("usual")), "tide.blocks.0.mixer")
    inner, gates, outer = ops["inner"], ops["gates"], ops["outer"]
    assert isinstance(inner, Column)
    assert inner.segments == ((24, 2),) * 3
    assert isinstance(gates, Column)
    assert gates.segments == ((2, 2), (2, 2))
    assert isinstance(outer, Row)
    assert ops["conv1d.weight"] == Share("tide.blocks.0.mixer.conv1d.weight", 0, ((24, 2),) * 3)
    assert ops["heads"] == Local("tide.blocks.0.mixer", "heads", 2, ((2, 2),))
    states = {name: op.segments for name, op in ops.items() if isinstance(op, Recurrence)}
    assert states == {"convolution": ((24, 2),) * 3, "gated_delta": ((2, 2),)}


def test_heads_that_read_one_another_stay_whole() -> None:
    plan = decide(tide("across"))
    ops = at(plan, "tide.blocks.0.mixer")
    assert not any(isinstance(op, Share | Local | Column) for op in ops.values())
    told = next(no for no in plan.refusals if no.wanted == "tensor")
    assert told.found.startswith("its shares do not add up to the whole")
    assert told.found.endswith(COST)
    assert told.place is not None


@pytest.mark.parametrize("groups", [1, 2])
def test_a_norm_over_all_heads_is_told_from_a_grouped_one(groups: int) -> None:
    """Mamba-2 norms over all heads whatever its groups: that is gathered. Groups of B and C are split or repeated."""
    ops = at(decide(mamba2(groups)), "backbone.layers.0.mixer")
    projection = ops["in_proj"]
    assert isinstance(projection, Column)
    shared = ((8, 1),) if groups == 1 else ((8, 2), (8, 2))  # B and C are whole, or split by groups
    assert projection.segments == ((64, 8), (64, 8), *shared, (8, 8))
    assert isinstance(ops["norm"], Keep)
    assert ops["norm"].units == 8
    assert "norm.weight" not in ops


def test_heads_need_not_divide_all_rows_of_a_projection() -> None:
    """Rows of B and C are one block: only the rows of each segment are in equal blocks, not those of all together."""
    config = Mamba2Config(
        hidden_size=24, num_heads=6, head_dim=8, state_size=4, n_groups=1, num_hidden_layers=1, vocab_size=64
    )
    ops = at(decide(subject(Mamba2ForCausalLM, config)), "backbone.layers.0.mixer")
    projection = ops["in_proj"]
    assert isinstance(projection, Column)
    assert projection.outputs % projection.units
    assert projection.segments == ((48, 6), (48, 6), (8, 1), (6, 6))
    assert sum(isinstance(op, Recurrence) for op in ops.values()) == 2


def test_a_grouped_norm_is_split_with_its_groups() -> None:
    config = NemotronHConfig(
        hidden_size=32, mamba_num_heads=8, mamba_head_dim=8, ssm_state_size=4, n_groups=4, num_hidden_layers=1,
        layers_block_type=["mamba"], vocab_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=48,
    )  # fmt: skip
    ops = at(decide(subject(NemotronHForCausalLM, config)), "model.layers.0.mixer")
    assert isinstance(ops["norm.weight"], Share)
    assert ops["norm.weight"].segments == ((64, 4),)


def test_other_rows_are_other_numbers() -> None:
    """The proof on two ranks fails where a packed projection is cut as if it were one."""
    plan, small = small_plan(tide("usual"))
    assert max(one.error for one in prove(plan, small.fresh, emitted(plan), ranks=(2,), stages=(1,))) < 1e-10
    ops = tuple(replace(op, segments=((72, 2),)) if op.path.endswith("mixer.inner") else op for op in plan.ops)
    with pytest.raises(Mismatch):
        prove(replace(plan, ops=ops), small.fresh, emitted(plan), ranks=(2,), stages=(1,))


def test_four_ranks() -> None:
    """B and C of one group are on every rank, those of two groups on two each."""
    for groups in (1, 2):
        plan, small = small_plan(mamba2(groups), ranks=4)
        proofs = prove(plan, small.fresh, emitted(plan), ranks=(4,), stages=(1,))
        assert max(one.error for one in proofs) < 1e-10


def test_projections_of_one_input_stay_one_product() -> None:
    """Beside one another they are one product, and each is still cut in its own way."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    config = Qwen3NextConfig(
        hidden_size=32, num_hidden_layers=1, layer_types=["linear_attention"], linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8, vocab_size=64, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16, intermediate_size=32,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    ops = at(decide(subject(Qwen3NextForCausalLM, config)), "model.layers.0.linear_attn")
    (stacked,) = [op for op in ops.values() if isinstance(op, Stacked)]
    assert stacked.split
    assert stacked.segments == ((96, 2), (8, 2))  # packed key head by key head
