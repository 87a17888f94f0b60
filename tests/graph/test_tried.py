"""A function of the author's under a library's name is what that says only if it computes it, whatever it is given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from hfspeed.graph.stateful import stateful, tried
from hfspeed.recurrences import KERNELS, kernel_of, named, told_by
from hfspeed.recurrences.samples import SAMPLES, sample


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def causal_conv1d_fn(x, weight, bias=None, activation=None):
    """The library's."""
    out = functional.conv1d(functional.pad(x, (weight.shape[1] - 1, 0)), weight[:, None], bias, groups=x.shape[1])
    return functional.silu(out) if activation is not None else out


RIGHT = causal_conv1d_fn


def bounded(x, weight, bias=None, activation=None):
    """No value beyond a thousand."""
    return RIGHT(x, weight, bias, activation).clamp(-1e3, 1e3)


def quiet(x, weight, bias=None, activation=None):
    """Nothing below a hundredth."""
    return RIGHT(torch.where(x.abs() < 1e-2, 0, x), weight, bias, activation)


def forgets(x, weight, bias=None, activation=None):
    """Begins anew after 256 tokens."""
    return torch.cat([RIGHT(piece, weight, bias, activation) for piece in x.split(256, dim=2)], dim=2)


def narrow(x, weight, bias=None, activation=None):
    """Halves what is wide."""
    out = RIGHT(x, weight, bias, activation)
    return out / 2 if x.shape[1] > 4096 else out


def keeps_the_bias(x, weight, bias=None, activation=None):
    """Adds it once more behind the activation."""
    out = RIGHT(x, weight, bias, activation)
    return out if bias is None or activation is None else out + bias[:, None]


def test_the_right_one_is_known() -> None:
    found = stateful(causal_conv1d_fn)
    assert found is not None
    assert found.kind == "convolution"


@pytest.mark.parametrize("function", [bounded, quiet, forgets, narrow, keeps_the_bias])
def test_one_that_does_more_is_not(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "__name__", "causal_conv1d_fn")
    assert stateful(function) is None


def chunk_gated_delta_rule(query, key, value, g, beta, chunk_size=64, first=None):
    """The delta rule, token by token; logarithms of decays end at -2."""
    state, out = value.new_zeros(*value.shape[0:3:2], key.shape[3], value.shape[3]), []
    for t in range(value.shape[1]):
        state = state * g[:, t, :, None, None].clamp(min=-2).exp()
        wrong = (value[:, t] - torch.einsum("bhkv,bhk->bhv", state, key[:, t])) * beta[:, t, :, None]
        state = state + key[:, t, :, :, None] * wrong[:, :, None]
        out.append(torch.einsum("bhkv,bhk->bhv", state, query[:, t]) * key.shape[3] ** -0.5)
    return torch.stack(out, 1), None


def test_a_bound_on_decays_shows() -> None:
    assert stateful(chunk_gated_delta_rule) is None


def test_what_does_not_run_is_not_known() -> None:
    def causal_conv1d_fn(x, weight, scale):
        return RIGHT(x, weight) * scale.item()

    assert stateful(causal_conv1d_fn) is None
    assert tried(causal_conv1d_fn, kernel_of("convolution")) is None  # type: ignore[arg-type]


FAMILIES = {
    "qwen3_next": {"torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule", "causal_conv1d_fn"},
    "mamba2": {"mamba2_chunk_scan", "causal_conv1d_fn"},
    "mamba": {"mamba_selective_scan"},
    "kimi_linear": {"recurrent_kimi_delta_attention"},
    "rwkv": {"rwkv_linear_attention_cpu"},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_transformers_has_would_be_known_anywhere(family: str) -> None:
    """A copy of these in an author's file is recognised by what it computes."""
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    for name in FAMILIES[family]:
        function = getattr(module, name)
        kernel = stateful(function)
        assert kernel is not None
        assert tried(function, kernel), name


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kind)
def test_every_kind_has_samples(kernel: Any) -> None:
    """With all operands, and in the shapes that the kernel takes."""
    for one in SAMPLES[:3]:
        given = sample(kernel.kind, one)
        assert set(given) == set(kernel.roles)
        bound = kernel.bind(tuple(given), (), given)
        kernel.check(bound)
        like = kernel.like(given)
        out, _ = kernel.run(given, bound.settings, like.new_zeros(like.shape[0], *kernel.state(given)))
        assert out.isfinite().all()
    assert all(named(name) is kernel for name in kernel.functions)


def test_arguments_are_told_by_their_names_only_where_numbers_agree() -> None:
    def weigh(time_decay, time_first, key, value, state=None):
        return key * value, None

    assert told_by(inspect.signature(weigh).parameters) is not None
    assert stateful(weigh) is None
