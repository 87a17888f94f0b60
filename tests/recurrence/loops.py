"""Every recurrence as a loop over tokens, written for reading: the measure of the kernels."""

from __future__ import annotations

import torch
from torch.nn import functional


def convolution(o, s):
    x, weight, bias = o["x"], o["weight"], o["bias"]
    wide = functional.pad(x, (weight.shape[1] - 1, 0))
    out = torch.stack([(wide[:, :, t : t + weight.shape[1]] * weight).sum(-1) for t in range(x.shape[2])], -1)
    out = out if bias is None else out + bias[:, None]
    return functional.silu(out) if s["activation"] else out


def shift(o, s):
    return torch.cat([torch.zeros_like(o["x"][:, :1]), o["x"][:, :-1]], 1)


def ssd(o, s):
    x, dt, a, b, c = (o[name] for name in ("x", "dt", "A", "B", "C"))
    dt = dt if o["dt_bias"] is None else dt + o["dt_bias"]
    dt = (functional.softplus(dt) if s["dt_softplus"] else dt).clamp(*s["dt_limit"])
    group = torch.arange(x.shape[2]) // (x.shape[2] // b.shape[2])
    state, out = x.new_zeros(x.shape[0], x.shape[2], x.shape[3], b.shape[3]), []
    for t in range(x.shape[1]):
        state = state * (dt[:, t] * a).exp()[..., None, None]
        state = state + (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, group, None]
        out.append((state * c[:, t, group, None]).sum(-1))
    done = torch.stack(out, 1)
    return done if o["D"] is None else done + o["D"][:, None] * x


def selective_scan(o, s):
    x, dt, a, b, c = (o[name] for name in ("x", "dt", "A", "B", "C"))
    dt = dt if o["dt_bias"] is None else dt + o["dt_bias"][:, None]
    dt = functional.softplus(dt) if s["dt_softplus"] else dt
    state, out = x.new_zeros(x.shape[0], *a.shape), []
    for t in range(x.shape[2]):
        state = state * (dt[:, :, t, None] * a).exp() + (dt[:, :, t] * x[:, :, t])[..., None] * b[:, None, :, t]
        out.append((state * c[:, None, :, t]).sum(-1))
    done = torch.stack(out, -1)
    done = done if o["D"] is None else done + o["D"][:, None] * x
    return done if o["z"] is None else done * functional.silu(o["z"])


def gated_delta(o, s):
    q, k, v, g, beta = (o[name] for name in ("q", "k", "v", "g", "beta"))
    if s["use_qk_l2norm_in_kernel"]:
        q, k = (value / (value.square().sum(-1, keepdim=True) + 1e-6).sqrt() for value in (q, k))
    q = q * (s["scale"] if s["scale"] is not None else k.shape[-1] ** -0.5)
    q, k = (value.repeat_interleave(v.shape[2] // value.shape[2], 2) for value in (q, k))
    decay = (g if g.ndim == 4 else g[..., None]).exp()
    state, out = v.new_zeros(v.shape[0], v.shape[2], k.shape[3], v.shape[3]), []
    for t in range(v.shape[1]):
        state = state * decay[:, t, :, :, None]
        wrong = v[:, t] - (state * k[:, t, :, :, None]).sum(2)
        state = state + k[:, t, :, :, None] * (beta[:, t, :, None] * wrong)[:, :, None]
        out.append((state * q[:, t, :, :, None]).sum(2))
    return torch.stack(out, 1)


def linear_recurrence(o, s):
    state, out = torch.zeros_like(o["x"][:, 0]), []
    for t in range(o["x"].shape[1]):
        state = state * o["gate"][:, t] * ~o["reset"][:, t] + o["x"][:, t]
        out.append(state)
    return torch.stack(out, 1)


def wkv(o, s):
    k, v, first = o["k"], o["v"], o["time_first"].exp()
    above, below, out = torch.zeros_like(v[:, 0]), torch.zeros_like(v[:, 0]), []
    for t in range(v.shape[1]):
        own = k[:, t].exp()
        out.append((above + own * first * v[:, t]) / (below + own * first))
        fade = (-o["time_decay"].exp()).exp()
        above, below = above * fade + own * v[:, t], below * fade + own
    return torch.stack(out, 1)


def _r(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def operands(kind, batch, tokens):
    """Random operands of a kind, and settings that differ from the usual ones."""
    b, t = batch, tokens
    delta = {"v": _r(b, t, 4, 5), "q": _r(b, t, 2, 8), "k": _r(b, t, 2, 8), "beta": _r(b, t, 4).sigmoid()}
    return {
        "convolution": ({"x": _r(b, 6, t), "weight": _r(6, 4), "bias": _r(6)}, {"activation": "silu"}),
        "shift": ({"x": _r(b, t, 6)}, {}),
        "ssd": (
            {"x": _r(b, t, 4, 3), "dt": _r(b, t, 4), "B": _r(b, t, 2, 5), "C": _r(b, t, 2, 5), "A": -_r(4).exp(),
             "D": _r(4), "dt_bias": _r(4)},
            {"dt_softplus": True, "dt_limit": (0.1, 2.0)},
        ),
        "selective_scan": (
            {"x": _r(b, 6, t), "dt": _r(b, 6, t), "B": _r(b, 3, t), "C": _r(b, 3, t), "z": _r(b, 6, t),
             "A": -_r(6, 3).exp(), "D": _r(6), "dt_bias": _r(6)},
            {"dt_softplus": True},
        ),
        "gated_delta": (delta | {"g": -_r(b, t, 4).exp()}, {"use_qk_l2norm_in_kernel": True}),
        "fine_gated_delta": (delta | {"g": -_r(b, t, 4, 8).exp()}, {"use_qk_l2norm_in_kernel": True, "scale": 0.3}),
        "linear_recurrence": (
            {"x": _r(b, t, 6), "gate": _r(b, t, 6).sigmoid(), "reset": torch.rand(b, t, 1) < 0.05}, {},
        ),
        "wkv": ({"v": _r(b, t, 6), "k": 2 * _r(b, t, 6), "time_decay": _r(6), "time_first": _r(6)}, {}),
    }[kind]  # fmt: skip


LOOPS = {
    "convolution": convolution,
    "shift": shift,
    "ssd": ssd,
    "selective_scan": selective_scan,
    "gated_delta": gated_delta,
    "fine_gated_delta": gated_delta,
    "linear_recurrence": linear_recurrence,
    "wkv": wkv,
}
