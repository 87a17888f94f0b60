"""Linter and planner agree on what ships with transformers: what is served has no error, what is refused has one.

A few families of every outcome; all of them with ``make agreement``, or those whose checkpoints lie in a folder that
HFSPEED_ALL_FAMILIES names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hfspeed.lint.deep import heard, understood
from hfspeed.lint.engine import read, scan
from hfspeed.lint.facts import Facts
from hfspeed.lint.finding import Finding, Severity
from hfspeed.lint.rules import by_reason
from hfspeed.lint.settled import settled
from hfspeed.refusal import Reason

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

SOME = ["llama", "gptj", "gpt_neo", "bert", "cpmant", "diffllama"]
WHOLE = "HFSPEED_ALL_FAMILIES"


def families() -> list[str]:
    told = os.environ.get(WHOLE)
    if not told:
        return SOME
    if Path(told).is_dir():
        return sorted(str(file.parent) for file in Path(told).glob("*/config.json"))
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def classes(facts: Facts, findings: list[Finding]) -> set[str]:
    """The classes that findings stand in."""
    return {
        cls.name
        for cls in facts.classes.values()
        for one in findings
        if cls.node.lineno < one.place.line <= (cls.node.end_lineno or 0)
    }


@pytest.mark.parametrize("family", families())
def test_linter_and_planner_agree(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hfspeed.planner import decide as module
    from hfspeed.planner.findings import findings

    plans: list[Any] = []
    real = module.decide
    monkeypatch.setattr(module, "decide", lambda subject: plans.append(real(subject)) or plans[-1])
    raw = findings(family, trust_remote_code=Path(family).is_dir())
    planned = understood(heard(json.dumps(raw)), family)
    if planned.file is None:
        pytest.skip(str(raw["error"]))
    facts = read(planned.file)
    assert isinstance(facts, Facts)
    static = scan(facts)
    by_reading = [one for one in static.findings if one.code == "HFS101"]
    kept, news = settled(planned, static, planned.file)
    left = [*kept.findings, *news]
    errors = [one for one in left if one.severity is Severity.ERROR]
    if plans:
        assert planned.served
        assert errors == []
        assert [one for one in static.findings if one.severity is Severity.ERROR] == []
        by_hand = not plans[0].wrapper.interface
        if by_hand and "AutoModel" not in facts.text:  # else it stands in another file
            assert classes(facts, by_reading) & planned.classes
        if not by_hand:
            assert not classes(facts, by_reading) & planned.classes
        told = [one for one in kept.findings if one.code == "HFS101"]
        assert {one.severity for one in told if classes(facts, [one]) & planned.classes} <= {Severity.INFO}
        return
    assert errors
    if not raw["refused"]:
        assert [one.code for one in errors] == ["HFS901"]
        return
    for refusal in raw["refusals"]:
        code = by_reason()[Reason(refusal["reason"])].code
        assert any(one.code == code and refusal["found"] in (one.message, *_promoted(one)) for one in errors)
        place = refusal["place"]
        if place and code == "HFS101" and Path(place["file"]) == planned.file:
            blamed = [one for one in news if one.place.line == place["line"]]
            assert classes(facts, blamed) <= classes(facts, by_reading)


def _promoted(one: Finding) -> list[str]:
    """A refusal without a line is told where reading found what it means."""
    return ["no module calls the attention interface"] if "by hand" in one.message else []
