"""Attention by hand keeps what its examples promise: found, measured, rewritten, and the same numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from hfspeed.emit import emitted
from hfspeed.example import Example
from hfspeed.fusions.eager_attention import EagerAttention
from hfspeed.graph.nodes import is_attention
from hfspeed.pattern.by_hand import by_hand
from hfspeed.pattern.measure import Measured
from hfspeed.pattern.site import Site
from hfspeed.planner import forwards
from hfspeed.planner.prove import prove_module
from hfspeed.refusal import Reason, Refused
from hfspeed.testing import cases, module_of, plan_of, recorded

sys.path.insert(0, str(Path(__file__).parent))
from authored_attention import Grouped, Mixed, Plain, Root

TOKENS = 6


def measured(example: Example) -> Measured:
    """What an example's module computes, once its emitted form is proven."""
    return proven(module_of(example), example.after.strip())


def proven(root: nn.Module, after: str) -> Measured:
    """What ``block`` of ``root`` computes, once its emitted form, which has ``after`` in it, is proven."""
    call = recorded(root).calls["block"]
    change = by_hand(call, TOKENS)
    assert change is not None
    assert after in change.text
    plan = plan_of(forwards.by_hand(Site(call), change), root)
    prove_module(plan, root, "block", call.args, call.kwargs, classes=emitted(plan), ranks=(1,))
    (node,) = [n for n in call.graph.nodes if is_attention(n)]
    found = node.meta["measured"]
    assert isinstance(found, Measured)
    return found


@pytest.mark.parametrize(("_fusion", "example"), cases((EagerAttention(),), "fuses"))
def test_fuses(_fusion: EagerAttention, example: Example) -> None:
    measured(example)


@pytest.mark.parametrize(("_fusion", "example"), cases((EagerAttention(),), "refuses"))
def test_refuses(_fusion: EagerAttention, example: Example) -> None:
    call = recorded(module_of(example)).calls["block"]
    with pytest.raises(Refused) as no:
        by_hand(call, TOKENS)
    refusal = no.value.refusal
    assert refusal.reason is example.reason, refusal
    assert refusal.place is not None
    assert "hfspeed_example_" in refusal.place.file


def test_the_numbers_are_found() -> None:
    """Scale, window, cap and slopes come out as they were written."""
    found = [measured(example) for example in EagerAttention.fuses]
    assert [round(one.scale, 9) for one in found] == [
        round(8**-0.5, 9), 1.0, 0.5, 0.25, 1.0, 0.2, round(1 / 3, 9), 0.3,
    ]  # fmt: skip
    assert [one.window for one in found] == [None, None, 3, None, None, None, None, None]
    assert [one.softcap and round(one.softcap, 6) for one in found] == [
        None, None, None, None, 5.0, None, None, None,
    ]  # fmt: skip
    assert [one.alibi for one in found] == [None, None, None, (0.5, 0.25, 0.125, 0.0625), None, None, None, None]


def authored(cls: type[nn.Module]) -> nn.Module:
    return Root(cls()).double().eval().requires_grad_(False)


def test_a_function_that_attends_is_replaced_as_a_whole() -> None:
    after = "output, weights = (self.attn(q.to(v.dtype), k.to(v.dtype), v, None)[0], None)"
    assert proven(authored(Grouped), after).scale == 0.3
    after = "self.attn(q.to(v.dtype), k.to(v.dtype), v, None)[0].transpose(1, 2).transpose(1, 2).reshape(1, 6, -1)"
    assert proven(authored(Plain), after).scale == 8**-0.5


def test_a_function_that_mixes_what_it_is_given_is_refused() -> None:
    with pytest.raises(Refused) as no:
        by_hand(recorded(authored(Mixed)).calls["block"], TOKENS)
    assert no.value.refusal.reason is Reason.CALLED_THROUGH_HELPER
