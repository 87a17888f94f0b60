"""The text of a plan: readable, the same every time, and parsed back to the same ops."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfspeed.plan import Attention, Heads, History, Keep, Local, Norm, Recurrence, Row, Stacked, lines, paths, text
from hfspeed.plan.ops import Column, Embed, Gated, Head, Whole
from hfspeed.plan.settings import shown as setting

GOLDEN = Path(__file__).parent / "plan.txt"


def test_golden(proven):
    assert text.render(proven, ranks=4, stages=2, errors=False) == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(("ranks", "stages"), [(1, 1), (2, 1), (4, 4)])
def test_it_parses_back(proven, ranks, stages):
    told = text.render(proven, ranks=ranks, stages=stages)
    assert text.parse(told) == tuple(sorted(proven.ops, key=text.order))


def test_the_ops_alone_do_not_depend_on_ranks(proven):
    assert text.parse(text.render(proven)) == text.parse(text.render(proven, ranks=2))


def test_it_is_short_however_many_layers(plan):
    def longer(op, by):
        return replace(op, path=op.path.replace("layers.0", f"layers.{by}"))

    many = [longer(op, by) for by in range(0, 200, 2) for op in plan.ops if "layers.0." in f"{op.path}."]
    told = text.render(replace(plan, ops=tuple(many), stages=None))
    assert "model.layers.[0-198/2].self_attn" in told
    assert len(told.splitlines()) < 60
    assert len(text.parse(told)) == len(many)


def test_errors_are_told(proven):
    told = text.render(proven)
    assert "largest error 1.0e-15" in told
    assert "allowed 1e-08" in told


def test_diff(plan):
    other = replace(plan, ops=tuple(op for op in plan.ops if not isinstance(op, Local)))
    told = text.diff(text.render(plan), text.render(other), names=("golden", "now"))
    assert told.startswith("--- golden\n+++ now\n")
    assert any(line.startswith("-") and "num_heads" in line for line in told.splitlines())
    assert text.diff("same", "same") == ""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  norm  norm", "line 4: expected a name, a kind and what it is"),
        ("  norm  morn  64, eps 1e-5", "line 4: no op is called 'morn'"),
        ("  norm  norm  64", "line 4: model.norm: the norm lacks eps, weight"),
        ("  norm  norm  64, eps 1e-5, weight plain, red", "line 4: model.norm: cannot read 'red' of a norm"),
        ("  up  column  64 -> many, 2 units", "line 4: model.up: cannot read '64 -> many' of a column"),
    ],
)
def test_what_cannot_be_read_is_told(line, told):
    with pytest.raises(ValueError, match=told):
        text.parse(f"A of b\n\nmodel\n{line}\n")


def test_what_runs_on_whole_sequences_says_its_masks() -> None:
    inputs = ("1xTx64", "none", "1xTx~16_int32")
    masks = ("attention_mask:window:24", "relative_distance:distance")
    op = History("model.layers.0.self_attn", inputs, ("1xTx64", "none"), masks, eager=True)
    told = lines.words(op)
    assert "masked by attention_mask:window:24 + relative_distance:distance, eager" in told
    assert lines.parse(*lines.where(op), "history", told) == op


name = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True)
path = st.lists(st.one_of(name, st.integers(0, 12).map(str)), min_size=1, max_size=3).flatmap(
    lambda pieces: name.map(lambda last: ".".join(["m", *pieces, last]))
)
size, flag = st.integers(1, 999), st.booleans()
real = st.floats(allow_nan=False, allow_infinity=False)
moved = st.lists(st.tuples(st.integers(0, 999), size, st.integers(1, 3)), max_size=3).map(tuple)
word = name.filter(lambda n: n not in {"none", "yes", "no"})
chosen = st.builds(setting, name, st.one_of(st.none(), flag, real, word, st.tuples(real, real)))
OPS = st.one_of(
    st.builds(Column, path, size, size, flag, size),
    st.builds(Row, path, size, size, flag),
    st.builds(Whole, path, size, size, flag),
    st.builds(Stacked, path, st.lists(name, min_size=1, max_size=3).map(tuple), size,
              st.lists(size, min_size=1, max_size=3).map(tuple), flag, flag, moved),
    st.builds(Heads, path, st.one_of(st.tuples(name), st.tuples(name, name, name)),
              size, size, size, size, size, flag, flag, moved),
    st.builds(Gated, path, st.sampled_from(["silu", "gelu", "gelu_tanh"])),
    st.builds(Norm, path, size, real, st.sampled_from(["none", "plain", "one_plus"]), st.integers(0, 9)),
    st.builds(Attention, path, size, size, size, size, real, st.one_of(st.none(), size),
              st.one_of(st.none(), real), st.one_of(st.none(), name), flag),
    st.builds(Embed, path, size, size, real),
    st.builds(Head, path, size, size, flag),
    st.builds(Keep, path, st.integers(0, 9)),
    st.builds(Recurrence, path, name, name, st.lists(size, min_size=1, max_size=3).map(tuple),
              st.lists(name, min_size=1, max_size=3).map(tuple), st.lists(chosen, max_size=3).map(tuple), size, flag),
    st.builds(Local, path, name, size),
)  # fmt: skip


@given(
    ops=st.lists(
        OPS, max_size=12, unique_by=lambda op: (op.path, type(op), getattr(op, "attribute", getattr(op, "name", "")))
    )
)
@settings(max_examples=150, deadline=None)
def test_any_ops_parse_back(plan, ops):
    told = text.render(replace(plan, ops=tuple(ops)))
    assert text.parse(told) == tuple(sorted(ops, key=text.order))


@given(found=st.sets(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1))
def test_paths_merge_and_expand(found):
    named = [f"a.{one}.b.{two}.c" for one, two in sorted(found)]
    merged = paths.merge(named)
    back = [path for pattern in merged for path in paths.expand(pattern)]
    assert sorted(back) == sorted(named)
    assert len(back) == len(set(back))


@given(found=st.sets(st.integers(0, 60), min_size=1))
def test_ranges(found):
    told = paths.ranges(sorted(found))
    assert paths.expand(f"x.[{told}]") == [f"x.{number}" for number in sorted(found)]


def test_ranges_read_well():
    assert paths.ranges(range(32)) == "0-31"
    assert paths.ranges(range(0, 26, 2)) == "0-24/2"
    assert paths.ranges([0, 1, 2, 3, 4, 6, 7, 8, 9, 10]) == "0-4,6-10"
    assert paths.ranges([5, 11]) == "5,11"
    with pytest.raises(ValueError, match="is no list of numbers"):
        paths.expand("x.[a]")


def test_no_torch_is_needed():
    assert importlib.util.find_spec("hfspeed.plan.text") is not None
    for module in (text, paths):
        assert "torch" not in vars(module)
