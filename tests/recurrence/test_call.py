"""A call's arguments, sorted once for each way to call."""

from __future__ import annotations

import pytest
import torch

from hfspeed.plan import Recurrence
from hfspeed.plan.settings import shown
from hfspeed.recurrences import kernel_of
from hfspeed.recurrences.call import Called
from hfspeed.refusal import Refused

NAMES = ("query", "key", "value", "g", "beta", "output_final_state", "use_qk_l2norm_in_kernel", "chunk_size")


def called() -> Called:
    said = (shown("use_qk_l2norm_in_kernel", True),)
    op = Recurrence("mixer", "rule", "gated_delta", (2, 4, 4), NAMES, said, pair=True)
    return Called(op, kernel_of("gated_delta"))


def test_each_call_gets_its_own_tensors() -> None:
    """Also where one tensor was two operands when the way to call was first seen."""
    call, settings = called(), {"use_qk_l2norm_in_kernel": True}
    one, other, value, decay, rate = (torch.full((1,), float(number)) for number in range(5))
    first = call.operands((one, one, value), {"g": decay, "beta": rate, **settings})
    assert first["q"] is first["k"] is one
    again = call.operands((other, one, value), {"g": rate, "beta": decay, **settings})
    assert [again[name] for name in ("q", "k", "v", "g", "beta")] == [other, one, value, rate, decay]
    assert len(call.known) == 1
    turned = call.operands((), {"beta": rate, "g": decay, "value": value, "key": one, "query": other, **settings})
    assert [turned[name] for name in ("q", "k", "v", "g", "beta")] == [other, one, value, decay, rate]


def test_other_settings_than_planned_are_refused_each_time() -> None:
    """Also after a call that was as planned."""
    call, given = called(), [torch.ones(1)] * 5
    call.operands(given, {"use_qk_l2norm_in_kernel": True})
    for _ in range(2):
        with pytest.raises(Refused, match="use_qk_l2norm_in_kernel"):
            call.operands(given, {"use_qk_l2norm_in_kernel": False})
        with pytest.raises(Refused, match="cu_seqlens"):
            call.operands(given, {"use_qk_l2norm_in_kernel": True, "cu_seqlens": torch.ones(1)})


def test_values_that_say_nothing_are_not_piled_up() -> None:
    """A new value at every step, or one that has no hash."""
    call, given = called(), [torch.ones(1)] * 5
    for number in range(100):
        assert call.operands(given, {"use_qk_l2norm_in_kernel": True, "chunk_size": number})["q"] is given[0]
    assert call.operands(given, {"use_qk_l2norm_in_kernel": True, "chunk_size": {}})["q"] is given[0]
    assert len(call.known) < 100


def test_lists_are_sorted_once_too() -> None:
    """As limits of steps come from a configuration."""
    names = ("x", "dt", "A", "B", "C", "chunk_size", "dt_limit")
    op = Recurrence("mixer", "scan", "ssd", (2, 4, 4), names, (shown("dt_limit", (0.0, 1.0)),))
    call, given = Called(op, kernel_of("ssd")), [torch.ones(1)] * 5
    for _ in range(2):
        call.operands((*given, 64), {"dt_limit": [0.0, 1.0]})
    assert len(call.known) == 1
    with pytest.raises(Refused, match="dt_limit"):
        call.operands((*given, 64), {"dt_limit": [0.0, 2.0]})
