"""Norms and token tables are known by what they compute, whatever they look like."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from hfspeed.pattern.probe import CannotProbe, materialised, probe_rms_norm, rms_norm, row_scale

SIZE = 24


class Norm(nn.Module):
    """A norm with a weight, whose forward is a function of the module and its input."""

    def __init__(self, forward, *, weight=True, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE)) if weight else None
        self.eps = eps
        self.code = forward

    def forward(self, x):
        return self.code(self, x)


def mean_square(x):
    return x.pow(2).mean(-1, keepdim=True)


ONE_PLUS = {
    "one plus": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * (1 + m.weight),
    "one plus, later": lambda m, x: (n := F.rms_norm(x, (SIZE,), None, m.eps)) + n * m.weight,
    "one plus, in float32": lambda m, x: F.rms_norm(x.float(), (SIZE,), 1 + m.weight.float(), m.eps).type_as(x),
}
PLAIN = {
    "rsqrt": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight,
    "sqrt": lambda m, x: m.weight * (x / torch.sqrt(mean_square(x) + m.eps)),
    "power": lambda m, x: (m.weight * x) * (x.square().mean(-1, True) + m.eps) ** -0.5,
    "sum": lambda m, x: x * ((x * x).sum(-1, keepdim=True) / x.shape[-1] + m.eps).rsqrt() * m.weight,
    "norm": lambda m, x: x / (x.norm(dim=-1, keepdim=True) ** 2 / SIZE + m.eps).sqrt() * m.weight,
    "in float32": lambda m, x: m.weight * (h := x.float()).mul((mean_square(h) + m.eps).rsqrt()).to(x.dtype),
    "cast last": lambda m, x: ((h := x.float()) * (mean_square(h) + m.eps).rsqrt() * m.weight.float()).type_as(x),
    "functional": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, m.eps),
    "by layer norm of both signs": lambda m, x: F.layer_norm(
        torch.cat([x, -x], -1), (2 * SIZE,), None, None, m.eps
    )[..., :SIZE] * m.weight,
}  # fmt: skip
OTHERS = {
    "mean over tokens": lambda m, x: x * torch.rsqrt(x.pow(2).mean(-2, keepdim=True) + m.eps) * m.weight,
    "mean over both": lambda m, x: x * torch.rsqrt(x.pow(2).mean((-1, -2), keepdim=True) + m.eps) * m.weight,
    "mean over halves": lambda m, x: F.rms_norm(x.unflatten(-1, (2, -1)), (12,), None, m.eps).flatten(-2) * m.weight,
    "weight twice": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight * 2,
    "weight squared": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight**2,
    "weight without sign": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight.abs(),
    "weight clipped": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight.clamp(max=2.0),
    "weight through a sigmoid": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) * m.weight.sigmoid(),
    "weight without effect": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) + 0 * m.weight,
    "weight added": lambda m, x: x * torch.rsqrt(mean_square(x) + m.eps) + m.weight,
    "weight inside": lambda m, x: F.rms_norm(x * m.weight, (SIZE,), None, m.eps),
    "epsilon outside the root": lambda m, x: x / (mean_square(x).sqrt() + m.eps) * m.weight,
    "epsilon as the least": lambda m, x: x / mean_square(x).sqrt().clamp(min=m.eps) * m.weight,
    "epsilon of the sum": lambda m, x: x * SIZE**0.5 / (x.pow(2).sum(-1, True).sqrt() + m.eps) * m.weight,
    "mean subtracted": lambda m, x: F.layer_norm(x, (SIZE,), m.weight, None, m.eps),
    "variance": lambda m, x: x * torch.rsqrt(x.var(-1, keepdim=True) + m.eps) * m.weight,
    "no mean": lambda m, x: x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + m.eps) * m.weight,
    "no root": lambda m, x: x / (mean_square(x) + m.eps) * m.weight,
    "absolute values": lambda m, x: x / (x.abs().mean(-1, True) + m.eps) * m.weight,
    "largest value": lambda m, x: x / (x.abs().amax(-1, True) + m.eps) * m.weight,
    "clipped before": lambda m, x: F.rms_norm(x.clamp(-20, 20), (SIZE,), m.weight, m.eps),
    "clipped after": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, m.eps).clamp(-3, 3),
    "residual": lambda m, x: x + F.rms_norm(x, (SIZE,), m.weight, m.eps),
    "squared": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, m.eps) ** 2,
    "turned": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, m.eps).flip(-1),
    "part only": lambda m, x: torch.cat([F.rms_norm(x[..., :8], (8,), m.weight[:8], m.eps), x[..., 8:]], -1),
    "another shape": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, m.eps)[..., :-1],
    "a pair": lambda m, x: (F.rms_norm(x, (SIZE,), m.weight, m.eps), x),
    "an error": lambda m, x: x.no_such_method(m),
    "another dtype": lambda m, x: F.rms_norm(x.double(), (SIZE,), m.weight.double(), m.eps),
    "epsilon of the dtype": lambda m, x: F.rms_norm(x, (SIZE,), m.weight),
    "epsilon of the dtype, asked": lambda m, x: F.rms_norm(x, (SIZE,), m.weight, torch.finfo(x.dtype).eps),
}


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 1e-5, 0.1, 3.7e-4])
@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize(("kind", "code"), [(k, c) for k, d in (("plain", PLAIN), ("one_plus", ONE_PLUS)) for c in d])
def test_a_norm_is_known_in_any_spelling(kind: str, code: str, rank: int, eps: float) -> None:
    found, weight, worst = probe_rms_norm(Norm((PLAIN | ONE_PLUS)[code], eps=eps), rank, SIZE)
    assert weight == kind
    assert found == eps, "the number as it is written"
    assert worst < 1e-5


@pytest.mark.parametrize("code", OTHERS)
@pytest.mark.parametrize("eps", [1e-6, 0.1])
def test_what_only_looks_like_a_norm_is_none(code: str, eps: float) -> None:
    with pytest.raises(CannotProbe) as caught:
        probe_rms_norm(Norm(OTHERS[code], eps=eps), 3, SIZE)
    assert str(caught.value)


def test_a_norm_needs_no_weight() -> None:
    for code in (lambda m, x: F.rms_norm(x, (SIZE,), None, m.eps), lambda m, x: x * (mean_square(x) + m.eps).rsqrt()):
        assert probe_rms_norm(Norm(code, weight=False, eps=1e-5), 3, SIZE)[:2] == (1e-5, "none")
    assert probe_rms_norm(Norm(lambda _, x: x / mean_square(x).sqrt(), weight=False), 3, SIZE)[:2] == (0.0, "none")


def test_torchs_own_norm() -> None:
    assert probe_rms_norm(nn.RMSNorm(SIZE, eps=1e-5), 3, SIZE)[:2] == (1e-5, "plain")
    assert probe_rms_norm(nn.RMSNorm(SIZE, eps=1e-5, elementwise_affine=False), 3, SIZE)[:2] == (1e-5, "none")
    with pytest.raises(CannotProbe, match="depends on the dtype"):
        probe_rms_norm(nn.RMSNorm(SIZE), 3, SIZE)


def test_parameters_may_be_on_meta() -> None:
    assert probe_rms_norm(nn.RMSNorm(SIZE, eps=1e-6, device="meta"), 3, SIZE)[:2] == (1e-6, "plain")
    hollow = Norm(PLAIN["rsqrt"]).to("meta")
    hollow.register_buffer("table", torch.zeros(3, device="meta"))
    with pytest.raises(CannotProbe, match="a buffer has no values"):
        probe_rms_norm(hollow, 3, SIZE)


def test_probing_changes_nothing() -> None:
    module = Norm(PLAIN["rsqrt"])
    before = copy.deepcopy(module.state_dict())
    probe_rms_norm(module, 3, SIZE)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert materialised(module).weight is not module.weight


@settings(max_examples=25)
@given(st.floats(1e-12, 1.0), st.integers(2, 300), st.sampled_from(["plain", "one_plus"]))
def test_any_epsilon_and_width(eps: float, size: int, kind: str) -> None:
    class Any(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.zeros(size))

        def forward(self, x):
            return F.rms_norm(x, (size,), self.scale if kind == "plain" else 1 + self.scale, eps)

    found, weight, _ = probe_rms_norm(Any(), 3, size)
    assert weight == kind
    assert found == pytest.approx(eps, rel=1e-4)


def test_equal_modules_are_probed_once_and_others_apart() -> None:
    class Axis(nn.Module):
        def __init__(self, axis):
            super().__init__()
            self.axis = axis

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(self.axis, keepdim=True) + 1e-6)

    for _ in range(50):  # a fact that is no plain number must not be known by its address
        assert rms_norm(Axis((-1,)), 3, SIZE)[0] == 1e-6
        with pytest.raises(CannotProbe):
            rms_norm(Axis((1,)), 3, SIZE)


class Scaled(nn.Embedding):
    factor = 1.0

    def forward(self, ids):
        return super().forward(ids) * self.factor


def test_row_scale() -> None:
    table = Scaled(100, 8, padding_idx=0)
    for factor in (1.0, 48.0, 0.25):
        table.factor = factor
        assert row_scale(table, 100) == pytest.approx(factor, rel=1e-12)
    assert row_scale(nn.Embedding(100, 8, device="meta"), 100) == 1.0


def test_row_scale_refuses_what_is_no_scaled_table() -> None:
    class Ranged(Scaled):
        def forward(self, ids):
            return nn.Embedding.forward(self, ids) + ids[..., None]

    class Normed(Scaled):
        def forward(self, ids):
            return F.normalize(nn.Embedding.forward(self, ids), dim=-1)

    for module in (Ranged(100, 8), Normed(100, 8), nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4))):
        with pytest.raises(CannotProbe):
            row_scale(module, 100)
