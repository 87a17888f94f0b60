"""Every rule is tested by its own examples and words."""

from __future__ import annotations

import ast
import inspect
import string
from pathlib import Path

import pytest

from hfspeed.example import Example
from hfspeed.lint.engine import check, read
from hfspeed.lint.finding import Finding
from hfspeed.lint.rule import FusionBlocker, Rule, lent
from hfspeed.lint.rules import by_reason, find, rules
from hfspeed.refusal import Place, Reason, Refusal

EVERY = pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.code)
TOLD_ELSEWHERE = {"HFS001", "HFS901", "HFS902"}  # by the engine, by the deep check and where comments are read
READING = [rule for rule in rules() if type(rule).check is not Rule.check]
REFUSAL = Refusal("gated", Reason.INPUTS_DIFFER, "`a` is not `b`", "Block")


def found_in(example: Example, folder: Path) -> list[Finding]:
    for name, text in {**example.files, example.path: example.text}.items():
        (folder / name).write_text(text)
    return check(read(folder / example.path))


@pytest.mark.parametrize("rule", [*READING, find("HFS001"), find("HFS902")], ids=lambda rule: rule.code)
def test_bad_yields_exactly_the_marked_findings_and_good_none(rule: Rule, tmp_path: Path) -> None:
    found = found_in(rule.bad, tmp_path)
    assert [(finding.place.line, finding.code) for finding in found] == list(rule.bad.marks())
    assert rule.bad.marks()
    assert found_in(rule.good, tmp_path) == []
    for finding in found:
        place = finding.place
        assert (place.end_line or 0, place.end_column or 0) >= (place.line, place.column)
        words = finding.message + finding.cost + finding.help
        assert "{" not in words
        assert len(finding.message) <= 100
        assert not finding.message.endswith(".")


@EVERY
def test_a_rule_is_complete(rule: Rule) -> None:
    assert rule.code.startswith("HFS")
    assert rule.code[3:].isdigit()
    assert len(rule.code) == 6
    assert Path(inspect.getfile(type(rule))).stem == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"
    assert inspect.getdoc(type(rule)) != inspect.getdoc(Rule)
    assert rule.since
    assert rule.message
    assert rule.cost
    assert rule.help
    assert not rule.help.endswith(".")
    assert {code for _, code in rule.bad.marks()} == {rule.code}
    assert rule.good.marks() == ()
    ast.parse(rule.good.text)
    if rule.code != "HFS001":
        ast.parse(rule.bad.text)


@EVERY
def test_a_rule_either_reads_or_lends_words(rule: Rule) -> None:
    assert rule in READING or rule.reasons or rule.code in TOLD_ELSEWHERE
    assert bool(rule.reasons) or not isinstance(rule, FusionBlocker)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_one_rule_that_can_tell_it(reason: Reason) -> None:
    assert [rule for rule in rules() if reason in rule.reasons] == [by_reason()[reason]]
    told = lent(by_reason()[reason], REFUSAL, Place("m.py", 3), fatal=False)
    assert told.message == "`a` is not `b`"
    assert not any(field for text in (told.cost, told.help) for _, field, _, _ in string.Formatter().parse(text))


def test_a_refusals_own_help_is_the_one_told() -> None:
    refusal = Refusal("gated", Reason.INPUTS_DIFFER, "x", help="write y")
    assert lent(by_reason()[Reason.INPUTS_DIFFER], refusal, Place("m.py", 1), fatal=False).help == "write y"


def test_codes_and_names_are_unique_and_found_by_both() -> None:
    names = [rule.name for rule in rules()] + [rule.code for rule in rules()]
    assert len(set(names)) == 2 * len(rules())
    assert find("hfs101") is find("Attention-By-Hand") is not None
    assert find("HFS999") is None
