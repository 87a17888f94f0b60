"""What a module of experts computes is measured; what no kernel does is refused, never approximated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hfspeed.pattern.expert_form import expert_form
from hfspeed.pattern.probe import CannotProbe
from hfspeed.plan import Experts

sys.path.insert(0, str(Path(__file__).parent))
import expert_modules as modules

NAMES = ("x", "ids", "weights")
SMALL, LARGE = (4, 16, 12), (128, 4096, 1536)


def form(cls: type[nn.Module], sizes: tuple[int, ...], names: tuple[str, ...] = NAMES) -> Experts:
    return expert_form(modules.on_meta(cls, *sizes), "at", names, sizes[1], 2)


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_plain(sizes: tuple[int, ...]) -> None:
    count, inputs, inner = sizes
    wanted = Experts("at", count, 2, inputs, inner, "silu", NAMES, ("gate_up",), "down", skips=True)
    assert form(modules.Packed, sizes) == wanted


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_a_clamp_that_seldom_acts(sizes: tuple[int, ...]) -> None:
    found = form(modules.Clamped, sizes)
    assert (found.act, found.limit, found.alpha, found.beta) == ("silu", 1000.0, 1.0, 0.0)


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_rows_in_turn_and_a_gate_with_constants(sizes: tuple[int, ...]) -> None:
    found = form(modules.Woven, sizes)
    assert (found.interleaved, found.limit, found.alpha, found.beta) == (True, 7.0, 1.702, 1.0)


def test_up_before_gate() -> None:
    found = form(modules.Swapped, SMALL)
    assert (found.act, found.swapped) == ("gelu_tanh", True)


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_three_matrices_with_biases_under_odd_names(sizes: tuple[int, ...]) -> None:
    found = form(modules.Apart, sizes, ("tokens", "chosen", "share"))
    assert (found.up, found.down, found.up_bias, found.down_bias) == (("b", "a"), "c", ("bias_b", "bias_a"), "bias_c")
    assert found.act == "gelu"
    assert found.turned


def test_weights_on_the_input() -> None:
    found = form(modules.WeighsInput, SMALL)
    assert (found.act, found.gated, found.weighs_input) == ("relu2", False, True)


@pytest.mark.parametrize("inner", [16, 8])
def test_widths_that_coincide(inner: int) -> None:
    found = form(modules.Packed, (4, 16, inner))
    assert (found.up, found.down, found.turned) == (("gate_up",), "down", False)


@pytest.mark.parametrize(
    "cls",
    [
        modules.OneSided,
        modules.Scaled,
        modules.Shared,
        modules.Renormalised,
        modules.FirstTwice,
        modules.Remembers,
    ],
)
def test_what_a_kernel_would_lose(cls: type[nn.Module]) -> None:
    for sizes in (SMALL, LARGE):
        with pytest.raises(CannotProbe):
            form(cls, sizes)


def test_large_sizes_that_cannot_be_told_apart() -> None:
    with pytest.raises(CannotProbe, match="told apart"):
        form(modules.Packed, (512, 2048, 512))


def test_nothing_is_written_to_the_module() -> None:
    module = modules.Packed(*SMALL)
    before = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    with torch.no_grad():
        module.gate_up.fill_(1)
    expert_form(module, "at", NAMES, 16, 2)
    assert bool((module.gate_up == 1).all())
    assert {name: value for name, value in vars(module).items() if not name.startswith("_")} == before
