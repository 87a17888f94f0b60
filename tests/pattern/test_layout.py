"""The order of attention's dimensions: what is said in source and what is done with tensors are one thing."""

from __future__ import annotations

from itertools import permutations, product

import pytest
import torch

from hfspeed.pattern.layout import INTERFACE, RESULT, laid, spelled

SIZES = {"b": 1, "h": 4, "t": 5, "d": 6}
ORDERS = ["".join(order) for order in permutations("htd")]


def tensor(layout: str) -> torch.Tensor:
    shape = (1, 5, 24) if "/" in layout else tuple(SIZES[name] for name in layout)
    return torch.arange(120.0).reshape(shape)


@pytest.mark.parametrize("layout", [*ORDERS, *(f"b{order}" for order in ORDERS), "bt/6"])
def test_source_does_what_is_done(layout: str) -> None:
    x = tensor(layout)
    for wanted in (INTERFACE, RESULT, "bt/6"):
        assert torch.equal(eval(spelled("x", layout, wanted)), laid(x, layout, wanted))


@pytest.mark.parametrize(("layout", "wanted"), [*product(["bhtd", "bthd", "bt/6", "htd"], repeat=2)])
def test_there_and_back(layout: str, wanted: str) -> None:
    x = tensor(layout)
    assert torch.equal(laid(laid(x, layout, wanted), wanted, layout), x)


def test_heads_in_the_last_dimension_lie_behind_one_another() -> None:
    x = tensor("bt/6")
    assert torch.equal(laid(x, "bt/6")[0, 1, 2], x[0, 2, 6:12])
    said = spelled("x", "bt/6", size="self.attn.key_size")
    assert said == "x.unflatten(-1, (-1, self.attn.key_size)).transpose(1, 2)"
