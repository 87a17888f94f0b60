"""vLLM's kernels behind our layers compute the formula, whatever lies in memory how."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from hfspeed.pattern.rotation import once, turned, twice
from hfspeed.plan import Positions, Rotary

TOKENS, SIZE = 9, 32


@pytest.fixture(autouse=True)
def _eager(serving: ModuleType) -> Iterator[None]:
    """Layers look up in vLLM's settings whether they may use kernels; without compilation they do."""
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config

    with set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(mode=0, custom_ops=["all"]))):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight", ["plain", "one_plus", "none"])
@pytest.mark.parametrize("size", [32, 36, 5])
def test_a_norm_of_parts_side_by_side(dtype: torch.dtype, weight: str, size: int) -> None:
    from hfspeed.vllm.layers.norm import OnePlusNorm, PlainNorm

    torch.manual_seed(0)
    layer: Any = OnePlusNorm(size) if weight == "one_plus" else PlainNorm(size, has_weight=weight == "plain")
    layer.to(dtype)
    if weight != "none":
        nn.init.normal_(layer.weight)
    part = torch.randn(1, TOKENS, 4 * size).to(dtype)[..., size : 3 * size].unflatten(-1, (2, size))
    assert not part.is_contiguous()
    wide = part.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    if weight != "none":
        wide = wide * (layer.weight.float() + (weight == "one_plus"))
    tight = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(layer(part), wide.to(dtype), **tight)


@pytest.mark.parametrize(
    ("tokens", "table", "interleaved"), list(product((1, 2), ("halves", "pairs", "half"), (False, True)))
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", [32, 16, 20, 24, 6])
def test_heads_are_turned(tokens: int, table: Any, interleaved: bool, dtype: torch.dtype, part: int) -> None:
    from hfspeed.vllm.layers.rotary import Rotation

    torch.manual_seed(0)
    both = torch.randn(1, TOKENS, 5 * SIZE).to(dtype)
    query, key = (one.unflatten(-1, (-1, SIZE)) for one in both.split((3 * SIZE, 2 * SIZE), -1))
    if tokens == 2:
        query, key = query.transpose(1, 2), key.transpose(1, 2)
    angles = torch.rand(TOKENS, part // 2) * 6
    cos, sin = (twice(one, table)[None].to(dtype) for one in (angles.cos(), angles.sin()))
    how: Any = {"tokens": tokens, "interleaved": interleaved}
    exact = once(cos, table).float(), once(sin, table).float()
    wanted = tuple(turned(one.float(), *exact, **how).to(dtype) for one in (query, key))
    tight = {"rtol": 0.02, "atol": 0.03} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for fresh in (False, True):
        layer = Rotation(Rotary("at", tokens, table, interleaved, fresh))
        assert layer._forward_method == layer.forward_cuda
        given = both.clone()
        mine = [one.unflatten(-1, (-1, SIZE)) for one in given.split((3 * SIZE, 2 * SIZE), -1)]
        mine = [one.transpose(1, 2) for one in mine] if tokens == 2 else mine
        torch.testing.assert_close(layer(mine[0], mine[1], cos, sin), wanted, **tight)
        assert fresh or torch.equal(given, both), "what others may read was written over"


def test_angles_in_another_dtype_are_not_rounded() -> None:
    from hfspeed.vllm.layers.rotary import Rotation

    query = torch.randn(1, 2, TOKENS, SIZE).bfloat16()
    angles = torch.rand(1, TOKENS, SIZE // 2) * 6
    layer = Rotation(Rotary("at", 2, "half", False, True))
    out, _ = layer(query, None, angles.cos(), angles.sin())
    wanted = turned(query.float(), angles.cos()[0], angles.sin()[0], tokens=2, interleaved=False)
    torch.testing.assert_close(out, wanted.bfloat16())


def test_angles_that_are_written_over_count() -> None:
    from hfspeed.vllm.layers.rotary import Rotation

    layers = [Rotation(Rotary("at", 2, "half", False, True)) for _ in range(2)]
    cos, sin = torch.empty(1, TOKENS, SIZE // 2), torch.empty(1, TOKENS, SIZE // 2)
    for _ in range(2):
        angles = torch.rand(1, TOKENS, SIZE // 2)
        cos.copy_(angles.cos())
        sin.copy_(angles.sin())
        for layer in layers:
            query = torch.randn(1, 2, TOKENS, SIZE)
            wanted = turned(query, cos[0], sin[0], tokens=2, interleaved=False)
            torch.testing.assert_close(layer(query.clone(), None, cos, sin)[0], wanted)


class Angular(nn.Module):
    """As authors write it: dtype from a value, other rates for another word."""

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, layer_type: str = "slow") -> Any:
        rates = (0.5 if layer_type == "slow" else 0.9) ** torch.arange(SIZE // 2)
        angles = position_ids[..., None].float() * rates
        both = torch.cat((angles, angles), -1)
        return both.cos().to(x.dtype), angles.sin().to(x.dtype)


def test_rows_are_looked_up() -> None:
    from hfspeed.vllm.layers.positions import PositionRows

    author = Angular()
    rows = PositionRows(Positions("at", "position_ids", "x", "layer_type", ("slow", "fast")), author, 40)
    positions = torch.tensor([[0, 1, 2, 39, 0, 7]])
    value = torch.randn(1, 6, 8)
    for kind in ("slow", "fast"):
        wanted = author(value, positions, kind)
        for found in (rows(value, positions, kind), rows(value, position_ids=positions, layer_type=kind)):
            torch.testing.assert_close(found, wanted)
    assert rows.rows_slow_0.shape == (40, SIZE // 2), "the second half repeats the first"
    assert not list(rows.parameters())
    assert not rows.state_dict()


def test_rows_are_as_exact_as_the_values_beside_them() -> None:
    """A stream in float32 in a model that is served in half precision; while that is built, the default is rounded."""
    from hfspeed.vllm.layers.positions import PositionRows

    author, positions = Angular(), torch.tensor([[0, 1, 2, 39, 0, 7]])
    torch.set_default_dtype(torch.bfloat16)
    try:
        rows = PositionRows(Positions("at", "position_ids", "x", "layer_type", ("slow", "fast")), author, 40)
    finally:
        torch.set_default_dtype(torch.float32)
    for dtype in (torch.float32, torch.bfloat16):
        value = torch.randn(1, 6, 8, dtype=dtype)
        for kind in ("slow", "fast"):
            found, wanted = rows(value, positions, kind), author(value, positions, kind)
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
def test_one_more_token_of_a_state_space(dtype: torch.dtype, groups: int) -> None:
    """VLLM's kernel changes states in pages that are longer than a state, and gives what ours gives."""
    from hfspeed.recurrences import kernel_of
    from hfspeed.vllm.advance import advanced, agrees

    assert agrees()
    torch.manual_seed(0)
    kernel, pages = kernel_of("ssd"), torch.tensor([3, 0])
    given = {
        "x": torch.randn(2, 1, 4, 8), "dt": torch.randn(2, 1, 4), "B": torch.randn(2, 1, groups, 16),
        "C": torch.randn(2, 1, groups, 16), "D": torch.randn(4), "dt_bias": torch.randn(4),
    }  # fmt: skip
    given = {name: value.to(dtype) for name, value in given.items()} | {"A": -torch.rand(4)}
    settings = {**kernel.usual, "dt_softplus": True, "dt_limit": (0.001, 0.5)}
    states = torch.randn(5, 600)[:, :512].view(5, 4, 8, 16)
    ours = states.clone()
    wanted, found = kernel.advance(given, settings, ours, pages), advanced(kernel, given, settings, states, pages, {})
    torch.testing.assert_close(states, ours, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found, wanted, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_more_token_of_the_delta_rule(dtype: torch.dtype, unit: bool) -> None:
    """In pages that are longer than a state, with fewer keys than values, and decays of any size."""
    from hfspeed.recurrences import kernel_of
    from hfspeed.vllm.advance import advanced
    from hfspeed.vllm.delta import takes

    torch.manual_seed(0)
    kernel, pages = kernel_of("gated_delta"), torch.tensor([3, 0, 4])
    given = {
        "q": torch.randn(3, 1, 2, 16), "k": torch.nn.functional.normalize(torch.randn(3, 1, 2, 16), dim=-1),
        "v": torch.randn(3, 1, 4, 8), "beta": torch.rand(3, 1, 4),
    }  # fmt: skip
    given = {name: value.to(dtype) for name, value in given.items()}
    given["g"] = torch.tensor([[0.0, -1e-38, -1e-6, -1.0], [-30.0, -1e5, -torch.inf, 0.5], [-0.1, -0.2, -0.3, -0.4]])[
        :, None
    ]
    settings = {**kernel.usual, "use_qk_l2norm_in_kernel": unit}
    states = torch.randn(6, 600)[:, :512].view(6, 4, 8, 16).transpose(2, 3)
    ours, before = states.clone(), states.clone()
    assert takes(kernel, given, settings, states)
    assert not takes(kernel_of("fine_gated_delta"), given, settings, states)
    assert not takes(kernel, given, settings, states.bfloat16())
    wanted, after = kernel.run({n: v.float() for n, v in given.items()}, settings, ours[pages])
    ours[pages] = after
    found = advanced(kernel, given, settings, states, pages, {})
    assert found.dtype is dtype
    torch.testing.assert_close(states, ours, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.float(), wanted, rtol=2e-2 if dtype is torch.bfloat16 else 1e-5, atol=1e-4)
    assert torch.equal(states[[1, 2, 5]], before[[1, 2, 5]])


BF16 = torch.cpu._is_avx512_bf16_supported()


def pieces(kind: str, dtype: torch.dtype) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A kernel, operands of 90 tokens of three sequences, and settings."""
    from hfspeed.recurrences import kernel_of
    from hfspeed.recurrences.samples import Sample, Sizes, sample

    kernel = kernel_of(kind)
    made = sample(kind, Sample(Sizes(1, 90, 2, 64)))
    narrow = {
        role: value.to(torch.float32 if role in {"g", "A", "D", "dt_bias"} else dtype) for role, value in made.items()
    }
    chosen = {"activation": "silu", "dt_softplus": True, "use_qk_l2norm_in_kernel": True}
    return kernel, dict.fromkeys(kernel.roles) | narrow, {n: chosen.get(n, v) for n, v in kernel.usual.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["convolution", "narrow convolution", "gated_delta", "ssd"])
def test_pieces_side_by_side(kind: str, dtype: torch.dtype) -> None:
    """By vLLM's kernels where they compute what ours do: new sequences and old ones, in pages that hold more."""
    from hfspeed.vllm.scan import Side, scanned

    torch.manual_seed(0)
    kernel, given, settings = pieces(kind.rsplit(maxsplit=1)[-1], dtype)
    if kernel.kind == "convolution":
        given["bias"] = given["bias"].to(dtype)
        given["weight"] = given["weight"][:, 1 if kind.startswith("narrow") else 0 :].contiguous()
    shape, kept_in = kernel.state(given), torch.float32 if kernel.exact_state else dtype
    order = (*shape[:-2], shape[-1], shape[-2]) if kernel.last_first else shape
    count = 1
    for size in shape:
        count *= size
    states = torch.randn(5, count + 8).to(kept_in)[:, :count].view(5, *order)
    states = states.transpose(-1, -2) if kernel.last_first else states
    before, starts, pages, goes_on = states.clone(), [0, 70, 89, 90], [3, 0, 4], [False, True, True]
    side = Side(torch.tensor(starts, dtype=torch.int32), torch.tensor(pages, dtype=torch.int32), torch.tensor(goes_on))
    found = scanned(kernel, given, settings, states, side, {})
    by_vllm = (BF16 and dtype is torch.bfloat16) or (kind == "ssd")
    assert (found is not None) is by_vllm
    if found is None:
        assert torch.equal(states, before)
        return
    for number, page in enumerate(pages):
        mine = {
            role: value.narrow(kernel.tokens[role], starts[number], starts[number + 1] - starts[number])
            if role in kernel.tokens and value is not None
            else value
            for role, value in given.items()
        }
        empty = before[page] if goes_on[number] else torch.zeros_like(before[page])
        out, after = kernel.run(mine, settings, empty[None])
        here = found.narrow(kernel.axis, starts[number], starts[number + 1] - starts[number])
        bound = 0.02 if dtype is torch.bfloat16 else 1e-4
        assert (here.float() - out.float()).abs().max() <= bound * out.float().abs().max()
        assert (states[page].float() - after[0].float()).abs().max() <= bound * after.float().abs().max()
    assert torch.equal(states[1:3], before[1:3])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4, 5])
def test_one_more_token_of_a_convolution(width: int, biased: bool) -> None:
    """VLLM's kernel takes four inputs, some of which may see nothing; ours takes more. Changed weights are seen."""
    from hfspeed.recurrences import kernel_of
    from hfspeed.vllm.advance import _convolves, advanced
    from hfspeed.vllm.scan import memory

    torch.manual_seed(0)
    kernel, pages = kernel_of("convolution"), torch.tensor([3, 0])
    given: dict[str, Any] = {"x": torch.randn(2, 64, 1).bfloat16(), "weight": torch.randn(64, width).bfloat16()}
    given["bias"] = torch.randn(64).bfloat16() if biased else None
    settings, kept = {"activation": "silu"}, {}
    states = memory(5, (64, width - 1), torch.bfloat16, kernel)
    states.copy_(torch.randn(states.shape))
    assert _convolves(kernel, given, settings, states) is (BF16 and width <= 4)
    for _ in range(2):
        ours = states.clone()
        wanted = kernel.advance({n: v.float() if v is not None else v for n, v in given.items()}, settings, ours, pages)
        found = advanced(kernel, given, settings, states, pages, kept)
        torch.testing.assert_close(found.float(), wanted, rtol=2e-2, atol=2e-2)
        assert torch.equal(states, ours)
        given["weight"].mul_(-0.5)
