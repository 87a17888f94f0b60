"""A hint stores one record, returns the same class, and rejects what cannot be right."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from hfspeed import attention, decoder_layers, experts, gated_mlp, norm
from hfspeed.errors import HfspeedError, HintError
from hfspeed.hints import ATTRIBUTE, read

HERE = __file__
BARE: list[Callable[[Any], Any]] = [attention, decoder_layers, experts, gated_mlp, norm]


def line() -> int:
    return inspect.currentframe().f_back.f_lineno  # type: ignore[union-attr]


@pytest.mark.parametrize("hint", BARE)
def test_bare_and_called_return_the_same_class(hint: Any) -> None:
    class Block:
        pass

    class Other:
        pass

    assert hint(Block) is Block
    assert hint()(Other) is Other
    assert [h.kind for h in read(Block)] == [h.kind for h in read(Other)] == [hint.__name__]
    assert read(Block)[0].names == ()
    assert Block.__name__ == "Block"
    assert not hasattr(Block, "__wrapped__")


def test_the_record_says_names_and_the_decorators_own_line() -> None:
    before = line()

    @norm
    @attention(query="q_proj", key="k_proj", value="v_proj", output="o_proj")
    @decoder_layers("layers")
    @gated_mlp(
        gate="gate_proj",
        up="mlp.up_proj",
    )
    @experts(router="gate", shared=None)
    class Block:
        pass

    hints = {hint.kind: hint for hint in read(Block)}
    assert list(hints) == ["experts", "gated_mlp", "decoder_layers", "attention", "norm"]
    assert {kind: hint.line - before for kind, hint in hints.items()} == {
        "norm": 2, "attention": 3, "decoder_layers": 4, "gated_mlp": 5, "experts": 9,
    }  # fmt: skip
    assert all(hint.file == HERE for hint in hints.values())
    assert hints["attention"].names == (
        ("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj"),
    )  # fmt: skip
    assert hints["decoder_layers"].name("layers") == "layers"
    assert hints["gated_mlp"].name("up") == "mlp.up_proj"
    assert hints["gated_mlp"].name("down") is None
    assert hints["experts"].names == (("router", "gate"),)


def test_a_hint_is_frozen_and_hashable() -> None:
    @norm
    class Block:
        pass

    (hint,) = read(Block)
    assert {hint: 1}[hint] == 1
    with pytest.raises(FrozenInstanceError):
        hint.kind = "attention"  # type: ignore[misc]


def test_a_subclass_does_not_inherit_and_adds_to_its_own() -> None:
    @norm
    class Parent:
        pass

    class Child(Parent):
        pass

    assert read(Child) == ()
    attention(Child)
    assert [hint.kind for hint in read(Child)] == ["attention"]
    assert [hint.kind for hint in read(Parent)] == ["norm"]


def test_only_the_one_attribute_is_set() -> None:
    class Block:
        pass

    before = set(vars(Block))
    gated_mlp(gate="g")(Block)
    assert set(vars(Block)) - before == {ATTRIBUTE}


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (lambda: attention(lambda: None), "@attention marks a class, got a function"),
        (lambda: norm()("Block"), "@norm marks a class, got a str"),
        (lambda: attention(query=1), "`query` takes the name of a child as a string, got a int"),
        (lambda: gated_mlp(up="up proj"), "`up` takes the name of a child, got 'up proj'"),
        (lambda: experts(router=""), "`router` takes the name of a child, got ''"),
        (lambda: decoder_layers(["layers"]), "@decoder_layers takes the name of a child, got a list"),
        (lambda: decoder_layers("self.layers[0]"), "takes the name of a child"),
        (lambda: norm(norm(type("Block", (), {}))), "@norm is said twice of `Block`"),
    ],
)
def test_what_cannot_be_right_is_told_where_the_class_is_defined(say: Any, words: str) -> None:
    with pytest.raises(HintError) as told:
        say()
    assert words in str(told.value)
    assert isinstance(told.value, HfspeedError)


def test_an_unknown_role_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        attention(quary="q_proj")  # type: ignore[call-overload]


def test_importing_hfspeed_is_light() -> None:
    program = """
import sys, time
start = time.perf_counter()
import hfspeed
took = time.perf_counter() - start
heavy = {"torch", "transformers", "vllm", "typer", "rich", "numpy", "libcst", "jinja2"} & set(sys.modules)
assert not heavy, heavy
print(took)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 0.5  # milliseconds on an idle machine
