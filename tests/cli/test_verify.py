"""``verify`` exits with 0 when equal, 1 at a difference or an impossible size, 2 for requests that cannot be met."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hfspeed.cli.app import main
from hfspeed.errors import RefusedError
from hfspeed.refusal import Place, Reason, Refusal

HAND = Path(__file__).parent.parent / "hand_plans.py"


@pytest.fixture(scope="session")
def hand():
    if "hand_plans" not in sys.modules:
        spec = importlib.util.spec_from_file_location("hand_plans", HAND)
        sys.modules["hand_plans"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["hand_plans"]


@pytest.fixture
def planner(hand, monkeypatch):
    """A planner that knows one model; tests may spoil its plan."""
    model = hand.author("gemma2", num_hidden_layers=2)
    known = SimpleNamespace(plan=hand.plan_of("gemma2", model), error=None)

    def first_plan(_subject):
        if known.error:
            raise known.error
        return known.plan

    def small_plan(_subject, **_sizes):
        if known.error:
            raise known.error
        return known.plan, SimpleNamespace(fresh=model)

    monkeypatch.setattr("hfspeed.planner.load.load", lambda name, *, trust_remote_code: name)
    monkeypatch.setattr("hfspeed.planner.decide.first_plan", first_plan)
    monkeypatch.setattr("hfspeed.planner.decide.small_plan", small_plan)
    monkeypatch.setattr("hfspeed.emit.emitted", lambda plan: hand.emitted(model, plan))
    return known


def _run(capsys, *arguments):
    with pytest.raises(SystemExit) as exited:
        main(["verify", "some/model", *arguments])
    shown = capsys.readouterr()
    return exited.value.code or 0, shown.out, shown.err


def test_equal(planner, capsys):
    code, out, _ = _run(capsys)
    assert code == 0
    assert [line.split(":")[1] for line in out.splitlines()] == [
        f" float64, {ranks}, {stages}" for ranks in ("1 rank", "2 ranks") for stages in ("1 stage", "2 stages")
    ]
    assert all(line.startswith("equal: ") and line.endswith("allowed 1e-08") for line in out.splitlines())


def test_numbers_and_types(planner, capsys):
    code, out, _ = _run(capsys, "--tp", "2,1", "--pp", "1", "--dtype", "float64,float32")
    assert code == 0
    assert [line.split(":")[1] for line in out.splitlines()] == [
        f" {dtype}, {ranks}, 1 stage" for dtype in ("float64", "float32") for ranks in ("1 rank", "2 ranks")
    ]


def test_unequal_tells_the_first_place(planner, capsys):
    at = "model.layers.1.post_attention_layernorm"
    ops = tuple(replace(op, eps=0.01) if op.path == at else op for op in planner.plan.ops)
    planner.plan = replace(planner.plan, ops=ops)
    code, out, _ = _run(capsys)
    assert code == 1
    assert out.splitlines()[0] == "unequal: some/model with 1 rank, 1 stage, prompts alone"
    assert out.splitlines()[1].startswith(f"  first at {at}: off by")


def test_a_refused_model_is_unequal_only_if_numbers_differ(planner, capsys):
    place = Place("modeling.py", 7)
    planner.error = RefusedError("some/model", (Refusal("model", Reason.NUMBERS_DIFFER, "off", "m.x", place),))
    code, out, _ = _run(capsys)
    assert code == 1
    assert out == "unequal: modeling.py:7:1: model in m.x: off (numbers-differ)\n"
    planner.error = RefusedError("some/model", (Refusal("attention", Reason.NO_INTERFACE, "none", "m.x", place),))
    code, out, err = _run(capsys)
    assert (code, out) == (2, "")
    assert "modeling.py:7:1: attention in m.x: none (no-interface)" in err


def test_what_the_plan_rules_out(planner, capsys):
    no = Refusal("tensor", Reason.MIXES_SPLIT, "heads are mixed", "m.attn")
    planner.plan = replace(planner.plan, tensor=False, refusals=(no,))
    code, _, err = _run(capsys, "--tp", "1,2")
    assert code == 2
    assert "--tp 2 --pp 1: Gemma2ForCausalLM cannot be split over ranks:\n  tensor in m.attn (mixes-split)" in err
    assert "heads are mixed" in err
    planner.plan = replace(planner.plan, stages=None)
    code, _, err = _run(capsys, "--pp", "2")
    assert code == 2
    assert "cannot be cut into stages:\n  the plan does not say why" in err


def test_a_size_that_the_large_model_rules_out_is_told_with_its_numbers(planner, capsys):
    code, out, _ = _run(capsys, "--tp", "1,3", "--pp", "1,99", "--ep", "1")
    assert code == 1
    told = [line for line in out.splitlines() if line.startswith("impossible: ")]
    assert len(told) == 2
    why = "model.layers.[0-1].self_attn: 3 does not divide 4 heads, 2 key heads"
    assert told[0].startswith(f"impossible: 3 ranks: {why}")
    assert told[1] == "impossible: 99 stages: model.layers has 2 layers, too few for 99 stages"
    equal = [line.split(":")[1] for line in out.splitlines() if line.startswith("equal: ")]
    assert equal == [" float64, 1 rank, 1 stage", " float64, 1 rank of whole experts, 1 stage"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--tp", "x"), "--tp takes numbers from 1 on"),
        (("--tp", "0"), "--tp takes numbers from 1 on"),
        (("--pp", "1,,2"), "--pp takes numbers from 1 on"),
        (("--dtype", "float128"), "--dtype takes float64, float32, bfloat16, float16"),
        (("--bogus",), "No such option"),
    ],
)
def test_usage(planner, capsys, arguments, told):
    code, out, err = _run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err
