"""A plan survives JSON to the last bit, and anything else is refused with its place."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfspeed.plan import Forward, Plan, Proof, Stages, Tie, Weight, Wrapper, ops
from hfspeed.plan import json as plan_json
from hfspeed.refusal import Place, Reason, Refusal

text = st.text(max_size=8)
number = st.integers(-(2**40), 2**40)
real = st.floats(allow_nan=False)
FIELDS = {int: number, float: real, str: text, bool: st.booleans(), Reason: st.sampled_from(Reason)}


def _of(hint):
    if hint in FIELDS:
        return FIELDS[hint]
    if is_dataclass(hint):
        return st.builds(hint, **{f.name: _of(get_type_hints(hint)[f.name]) for f in fields(hint)})
    told = str(hint)
    if told.startswith("tuple[") and told.endswith("]") and not told.endswith("...]"):
        return st.tuples(*(_of(item) for item in hint.__args__))
    if told.startswith("tuple[") and told.endswith("]"):
        return st.lists(_of(hint.__args__[0]), max_size=3).map(tuple)
    if told.startswith("typing.Literal"):
        return st.sampled_from(hint.__args__)
    return st.one_of(*(_of(item) if item is not type(None) else st.none() for item in hint.__args__))


for kind in (Place, Refusal, Proof, Weight, Tie, Forward, Stages, Wrapper, *ops.OPS):
    FIELDS[kind] = st.builds(kind, **{f.name: _of(get_type_hints(kind)[f.name]) for f in fields(kind)})
PLANS = _of(Plan)


@given(plan=PLANS)
@settings(max_examples=60, deadline=None)
def test_any_plan_survives(plan):
    told = plan_json.dumps(plan)
    back = plan_json.loads(told)
    assert back == plan
    assert repr(back) == repr(plan)
    assert plan_json.dumps(back) == told
    json.loads(told, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_usual_plan(proven):
    assert plan_json.loads(plan_json.dumps(proven, indent=2)) == proven
    back = plan_json.loads(plan_json.dumps(proven.with_proofs(Proof("a", "b", math.nan, math.inf))))
    assert math.isnan(back.proofs[-1].error)
    assert back.proofs[-1].bound == math.inf


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_corrupt_text_is_a_value_error(proven, data):
    told = plan_json.dumps(proven)
    at = data.draw(st.integers(0, len(told) - 1))
    cut = told[:at] + data.draw(st.sampled_from(["", "x", "{", "null", '"', "1", "[[", "true"])) + told[at + 1 :]
    with contextlib.suppress(ValueError):
        assert isinstance(plan_json.loads(cut), Plan)


def _at(data, *keys):
    for key in keys:
        data = data[key]
    return data


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("hfspeed_plan",), 99, "a plan of format 99, expected 1"),
        (("plan",), [], r"plan: found \[\], expected a Plan"),
        (("plan", "size"), "64", 'plan.size: found "64", expected a value of type int'),
        (("plan", "size"), True, "plan.size: found true, expected a value of type int"),
        (("plan", "ops"), {}, "plan.ops: found {}, expected a list"),
        (("plan", "ops", 0, "is"), "Conv", r"plan.ops\[0\]: found .*, expected `Attention`, `Column`"),
        (("plan", "ops", 0, "is"), [], r"plan.ops\[0\]: found"),
        (("plan", "ops", 0, "scale"), "8", r'plan.ops\[0\].scale: found "8", expected a number'),
        (("plan", "ops", 0, "extra"), 1, r"plan.ops\[0\]: Embed has no field `extra`"),
        (("plan", "ops", 3, "parts"), ["a", 2], r"plan.ops\[3\].parts\[1\]: found 2, expected a value of type str"),
        (("plan", "ops", 3, "rows"), [[0, 8]], r"plan.ops\[3\].rows\[0\]: found \[0, 8\], expected a list of 3"),
        (("plan", "ops", 8, "act"), "relu", r"plan.ops\[8\].act: found \"relu\", expected one of"),
        (("plan", "refusals", 0, "reason"), ["x"], r"plan.refusals\[0\].reason: found .*, expected a Reason"),
        (("plan", "stages"), 3, "plan.stages: found 3, expected `Stages`"),
        (("plan", "wrapper"), None, "plan.wrapper: found null, expected a Wrapper"),
    ],
)
def test_the_place_of_what_is_wrong(plan, where, value, told):
    data = json.loads(plan_json.dumps(plan))
    _at(data, *where[:-1])[where[-1]] = value
    with pytest.raises(ValueError, match=told):
        plan_json.loads(json.dumps(data))


def test_what_is_missing(plan):
    data = json.loads(plan_json.dumps(plan))
    del data["plan"]["ops"][0]["size"]
    with pytest.raises(ValueError, match=r"plan.ops\[0\]: Embed lacks `size`"):
        plan_json.loads(json.dumps(data))
    for junk in ("", "[", "3", "{}", '{"plan": {}}', "[" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011  the parser's own words
            plan_json.loads(junk)
