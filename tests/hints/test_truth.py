"""A hint that names a child which is not there is refused at its line."""

from __future__ import annotations

from hfspeed import attention, decoder_layers
from hfspeed.hints import read
from hfspeed.hints.truth import false_hints, untrue
from hfspeed.refusal import Reason


@attention(query="q_prj", key="k_proj")
class Block:
    pass


def test_a_missing_child_is_told_with_the_nearest_name() -> None:
    (refusal,) = false_hints(Block, {"q_proj", "k_proj"})
    assert refusal.reason is Reason.FALSE_HINT
    assert refusal.found == "`query` names `q_prj`, which is no child of `Block`"
    assert refusal.help == "write `q_proj`"
    assert refusal.place is not None
    assert (refusal.place.file, refusal.place.line) == (__file__, read(Block)[0].line)


def test_true_hints_are_silent() -> None:
    assert false_hints(Block, {"q_prj", "k_proj"}) == []
    assert false_hints(int, ()) == []


def test_without_a_near_name_the_choice_is_shown() -> None:
    @decoder_layers("towers")
    class Model:
        pass

    assert false_hints(Model, {"embed", "norm"})[0].help == "name one of `embed`, `norm`"
    assert false_hints(Model, ())[0].help == "take the name out"


def test_the_planner_can_refuse_at_the_same_line() -> None:
    refusal = untrue(read(Block)[0], "model.layers.0", "`query` is no projection of the input")
    assert str(refusal).endswith("attention in model.layers.0: `query` is no projection of the input (false-hint)")
