"""Recurrences in whole models: found however they are spelled, proven packed and token by token, or refused."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hfspeed.errors import RefusedError
from hfspeed.plan import History, Plan, Recurrence
from hfspeed.planner.decide import decide
from hfspeed.planner.load import Subject
from hfspeed.refusal import Reason, Refusal

sys.path.insert(0, str(Path(__file__).parent))
import stateful_models


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def plan_of(cls: type[Any], config: Any) -> Plan:
    return decide(Subject(cls.__name__, None, config, cls, stateful_models.__file__))  # type: ignore[arg-type]


def tide(spelling: str) -> Plan:
    return plan_of(stateful_models.TideForCausalLM, stateful_models.TideConfig(spelling=spelling))


def recurrences(plan: Plan) -> list[Recurrence]:
    return [op for op in plan.ops if isinstance(op, Recurrence)]


@pytest.mark.parametrize("spelling", ["usual", "module"])
def test_it_is_found_however_it_is_spelled(spelling: str) -> None:
    """In a method beside the forward, through an attribute, and as torch's own convolution cut to the tokens."""
    plan = tide(spelling)
    convolution, delta = recurrences(plan)[:2]
    assert (convolution.kind, convolution.state) == ("convolution", (72, 3))
    assert convolution.settings == (("activation=silu",) if spelling == "usual" else ())
    assert (delta.kind, delta.state, delta.pair) == ("gated_delta", (2, 12, 12), True)
    methods = {forward.method: forward.text for forward in plan.forwards if forward.base == "TideMixer"}
    assert "self.gated_delta(q, k, v, g=g" in methods["forward"]
    weight = "self.conv1d.weight" if spelling == "module" else "weight"
    assert f"self.convolution(x, {weight}" in methods["convolved"]
    assert max(proof.error for proof in plan.proofs) < 1e-10


def refusal(spelling: str) -> Refusal:
    with pytest.raises(RefusedError) as no:
        tide(spelling)
    return no.value.refusals[-1]


@pytest.mark.parametrize(
    ("spelling", "reason", "told"),
    [
        ("both sides", Reason.USED_ELSEWHERE, "pads on both sides"),
        ("cut", Reason.USED_ELSEWHERE, "pads on both sides"),
        ("sequences", Reason.KEYWORD_NOT_CONSUMED, "seq_idx"),
        ("helper", Reason.CALLED_THROUGH_HELPER, "causal_conv1d_fn"),
        ("state", Reason.USED_ELSEWHERE, "final state"),
        ("hinted, and asks", Reason.KEYWORD_NOT_CONSUMED, "start"),
        ("false hint", Reason.FALSE_HINT, "`lake` computes something else than gated_delta"),
        ("hinted, and forgets", Reason.FALSE_HINT, "`tidal_pool` computes something else than gated_delta"),
        ("ahead", Reason.NUMBERS_DIFFER, "off by"),
    ],
)
def test_what_cannot_be_served_is_refused(spelling: str, reason: Reason, told: str) -> None:
    found = refusal(spelling)
    assert found.reason is reason
    assert told in found.found


def test_a_hint_makes_a_function_known() -> None:
    """Its arguments have names of the author's own, and it gives the result alone."""
    plan = tide("hinted")
    delta = next(op for op in recurrences(plan) if op.kind == "gated_delta")
    assert delta.parameters == ("a=q", "b=k", "c=v", "decay=g", "rate=beta", "start", "return=alone")
    assert not delta.pair
    assert delta.segments == ((2, 2),)
    assert "self.gated_delta(q, k, v, decay=g" in next(f.text for f in plan.forwards if "gated_delta" in f.promised)


def test_a_false_hint_is_an_error_at_its_line() -> None:
    found = refusal("false hint")
    assert found.place is not None
    lines = Path(stateful_models.__file__).read_text("utf-8").splitlines()
    assert lines[found.place.line - 1].startswith("@recurrence(")
    assert lines[found.place.line].startswith("def lake(")


@pytest.mark.parametrize("spelling", ["inline", "lie"])
def test_what_nobody_knows_is_run_on_whole_sequences(spelling: str) -> None:
    """A sum over tokens that nobody named, and a function that is not what its name says."""
    plan = tide(spelling)
    histories = [op for op in plan.ops if isinstance(op, History)]
    assert [op.path for op in histories] == ["tide.blocks.0.mixer", "tide.blocks.1.mixer"]
    assert histories[0].inputs == histories[0].gives == ("1xTx24",)
    assert not recurrences(plan)
    assert Reason.NO_KERNEL in {refusal.reason for refusal in plan.refusals}
    assert max(proof.error for proof in plan.proofs) < 1e-10


def test_a_name_is_not_believed_beyond_what_is_computed() -> None:
    """A function under a library's name begins anew after 200 tokens; no prompt of the proof is as long."""
    plan = tide("forgets")
    assert {op.kind for op in recurrences(plan)} <= {"convolution"}
    assert [op.path for op in plan.ops if isinstance(op, History)] == ["tide.blocks.0.mixer", "tide.blocks.1.mixer"]
    told = next(one.found for one in plan.refusals if one.reason is Reason.NO_KERNEL)
    assert "`torch_chunk_gated_delta_rule` is not what libraries compute under that name" in told


@pytest.mark.parametrize("network", ["gru", "lstm"])
def test_a_network_of_torch_is_refused_at_its_line(network: str) -> None:
    """And soon: on meta, torch runs it token by token, and rows of 131,072 are looked at there."""
    begun = time.process_time()
    found = refusal(network)
    assert time.process_time() - begun < 20
    assert found.reason is Reason.NO_KERNEL
    assert f"`{network.upper()}` carries a state" in found.found
    assert found.place is not None
    line = Path(stateful_models.__file__).read_text("utf-8").splitlines()[found.place.line - 1]
    assert "self.network =" in line


FAMILIES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "Mamba2ForCausalLM": (
        {"hidden_size": 32, "state_size": 8, "num_heads": 4, "head_dim": 16, "n_groups": 2, "num_hidden_layers": 2},
        {"convolution", "ssd"},
    ),
    "FalconMambaForCausalLM": (
        {"hidden_size": 32, "state_size": 4, "num_hidden_layers": 2}, {"convolution", "selective_scan"},
    ),
    "RwkvForCausalLM": ({"hidden_size": 32, "num_hidden_layers": 2}, {"shift", "wkv"}),
    "Lfm2ForCausalLM": (
        {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
        {"convolution"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str) -> None:
    values, kinds = FAMILIES[name]
    cls = getattr(transformers, name)
    plan = plan_of(cls, cls.config_class(vocab_size=64, **values))
    assert {op.kind for op in recurrences(plan)} == kinds
